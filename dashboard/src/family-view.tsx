/** A fork's family: ancestors, and all that was forked from them. */
import type { JSX } from "preact";
import type { FamilyNode, FamilyView } from "../../src/dashboard/views.js";
import { useView } from "./api.js";
import * as show from "./format.js";
import { Card, Pending } from "./parts.js";
import { linkTo } from "./route.js";

export function FamilyPage(props: { readonly ns: string }): JSX.Element {
  const asked = useView<FamilyView>(`family?ns=${encodeURIComponent(props.ns)}`, 10_000);
  const view = asked.data;
  if (!view) return <Pending asked={asked} />;
  const uris = new Set(view.nodes.map(({ uri }) => uri));
  const roots = view.nodes.filter(({ parent }) => parent === undefined || !uris.has(parent));
  const end = Math.max(1, ...view.nodes.map(({ steps }) => steps?.end ?? 0));
  const note =
    view.nodes.length === 1
      ? "This log was not forked, and is no fork. `batchweave fork` makes one without copying a batch."
      : "What is solid is shared with the parent and stored once. What is faint is its own, what is hatched is trimmed.";
  return (
    <Card title="Family" note={note} wide>
      <ul class="tree">
        {roots.map((node) => (
          <Branch key={node.uri} node={node} nodes={view.nodes} end={end} above={new Set()} />
        ))}
      </ul>
      {view.more > 0 && <p class="note">{`and ${show.count(view.more)} more`}</p>}
    </Card>
  );
}

function Branch(props: {
  readonly node: FamilyNode;
  readonly nodes: readonly FamilyNode[];
  readonly end: number;
  readonly above: ReadonlySet<string>;
}): JSX.Element {
  const { node, nodes, end } = props;
  const above = new Set([...props.above, node.uri]);
  const children = nodes.filter(({ parent, uri }) => parent === node.uri && !above.has(uri));
  const width = (a: number, b: number): string => `${(100 * Math.max(0, b - a)) / end}%`;
  const { steps, shared } = node;
  return (
    <li>
      <div class="twig">
        <a
          href={linkTo("log", node.uri)}
          class={node.isSelf ? "self" : ""}
          title={node.uri}
          aria-current={node.isSelf ? "true" : undefined}
        >
          {show.shortName(node.uri)}
        </a>
        <span class="note">
          {node.problem ??
            `steps ${show.count(steps?.trim ?? 0)} to ${show.count((steps?.end ?? 0) - 1)}${node.closed ? ", ended" : ""}`}
          {shared ? `; shares ${show.count(shared.from)} to ${show.count(shared.to - 1)}` : ""}
        </span>
        {steps && (
          <div class="bar">
            {steps.trim > 0 && <div class="trimmed" style={{ left: "0%", width: width(0, steps.trim) }} />}
            <div class="own" style={{ left: width(0, steps.trim), width: width(steps.trim, steps.end) }} />
            {shared && (
              <div
                class="shared"
                style={{
                  left: width(0, Math.max(shared.from, steps.trim)),
                  width: width(Math.max(shared.from, steps.trim), Math.min(shared.to, steps.end)),
                }}
              />
            )}
          </div>
        )}
      </div>
      {children.length > 0 && (
        <ul>
          {children.map((child) => (
            <Branch key={child.uri} node={child} nodes={nodes} end={end} above={above} />
          ))}
        </ul>
      )}
    </li>
  );
}
