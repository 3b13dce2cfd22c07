/** The text of a WebDataset sample's `txt` file. */
export function caption(value: { readonly files: Readonly<Record<string, Uint8Array>> }): { text: string } {
  return { text: Buffer.from(value.files["txt"] as Uint8Array).toString("utf8") };
}
