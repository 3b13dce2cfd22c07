// Tokenizers for tests of replay: the same text, other tokens.

/** A token for each letter, moved up by `options.up`, each `options.times` times. @param {{ text: string }} value @param {{ up?: number, times?: number }} options */
export function spell(value, options) {
  const { up = 0, times = 1 } = options;
  const tokens = [...value.text].flatMap((letter) => new Array(times).fill(letter.charCodeAt(0) + up));
  return { tokens: Int32Array.from(tokens) };
}
