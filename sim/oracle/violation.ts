/** A promise that a run broke. */

/** Thrown by oracles. `property` names what does not hold, the same for every run that breaks it: `--minimize` keeps to it. */
export class Violation extends Error {
  override readonly name = "Violation";
  readonly property: string;

  constructor(property: string, message: string) {
    super(`${property}: ${message}`);
    this.property = property;
  }
}

/** What kind of failure an error is. */
export function propertyOf(error: unknown): string {
  if (error instanceof Violation) return error.property;
  if (error instanceof Error) return "code" in error ? `${error.name} ${String(error.code)}` : error.name;
  return typeof error;
}
