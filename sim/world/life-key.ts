/** Keys as the log of one life knows them. */

/** A key without the folder of its life. */
export function keyInLife(key: string): string {
  return key.replace(/^life\/[0-9a-f-]{36}\//, "");
}
