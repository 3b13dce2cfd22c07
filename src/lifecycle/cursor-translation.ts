/** Cursors across forks: a checkpoint of an ancestor goes on in the fork, where its row is shared. Pure. */
import { type Cursor, makeCursor, type NamespaceSpec } from "../format/index.js";
import { translateStep } from "./fork-plan.js";

/** A cursor that came from an ancestor, and where it stood there. */
interface TranslatedCursor extends Cursor {
  readonly origin: { readonly namespace: string; readonly uri: string; readonly row: number };
}

/**
 * The cursor's place in the fork `spec`, or undefined when it belongs to no ancestor, or has consumed rows that the fork does not share.
 * A row that the fork left out becomes the first row of the next step that it kept. The iteration goes on.
 */
export function translateCursor(spec: NamespaceSpec, cursor: Cursor): TranslatedCursor | undefined {
  const ancestor = spec.fork?.ancestors?.find(({ uuid }) => uuid === cursor.namespace);
  if (!ancestor) return undefined;
  const { rows } = spec.grid;
  const place = translateStep(ancestor.ranges, Math.floor(cursor.row / rows));
  if (!place) return undefined;
  const isEnd = ancestor.ranges.at(-1)?.from === Math.floor(cursor.row / rows);
  const offset = cursor.row % rows;
  // In the middle of the first step that is not shared: its first rows have been consumed.
  if (isEnd && offset !== 0) return undefined;
  return {
    ...makeCursor(spec.uuid, place.step * rows + (place.exact ? offset : 0), cursor.iteration),
    origin: { namespace: cursor.namespace, uri: ancestor.uri, row: cursor.row },
  };
}

/** Where a step of a fork came from: the nearest ancestor's uri and number. Undefined for an own step. */
export function originOfStep(
  spec: NamespaceSpec,
  step: number,
): { readonly uuid: string; readonly uri: string; readonly step: number } | undefined {
  const parent = spec.fork?.ancestors?.[0];
  const found = parent?.ranges.find((r) => step >= r.at && step < r.at + r.count);
  return parent && found && { uuid: parent.uuid, uri: parent.uri, step: found.from + step - found.at };
}
