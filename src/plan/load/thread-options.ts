/** How threads are started from any program. */

/**
 * Options of Node.js for a thread, to be spread: those of the program, as is usual. One given as text (`node --input-type=module -e`) says of what kind
 * the text is, and Node.js would start no thread from a file with that.
 */
export function threadOptions(args: readonly string[] = process.execArgv): { readonly execArgv?: string[] } {
  return args.some((arg) => arg.startsWith("--input-type")) ? { execArgv: [] } : {};
}
