#!/usr/bin/env bash
# Shows that a fresh clone works: clones HEAD (what is committed, nothing else) into a temporary folder, with an empty
# npm cache, and runs `make demo` and `make test` there. Arguments name other targets instead.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

git clone --quiet --no-local "$here" "$work/clone"
cd "$work/clone"
export npm_config_cache="$work/npm-cache"

targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(demo test)
for target in "${targets[@]}"; do
  echo "== fresh clone: make $target"
  make "$target"
done

# A run must leave nothing behind that git would pick up.
left="$(git status --porcelain)"
if [ -n "$left" ]; then
  echo "the run left files behind:" >&2
  echo "$left" >&2
  exit 1
fi
echo "== fresh clone: fine"
