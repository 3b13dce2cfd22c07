/** Parquet files for the memory benchmark: one per source, a few row groups each, text of skewed lengths. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { SeededRandom } from "../../src/plan/index.js";

/** Size of the files. */
export interface ParquetShape {
  readonly sources: number;
  readonly rowGroups: number;
  readonly rowsPerGroup: number;
  /** Characters of a row on average. */
  readonly rowChars: number;
}

/** Names of the files, in order. */
export function parquetPaths(folder: string, sources: number): string[] {
  return Array.from({ length: sources }, (_, i) => join(folder, `source-${String(i).padStart(3, "0")}.parquet`));
}

/** Writes them all. */
export async function writeParquetSources(folder: string, shape: ParquetShape): Promise<void> {
  const { parquetWriteBuffer } = await import("hyparquet-writer");
  const random = new SeededRandom("parquet-sources");
  const words = Array.from({ length: 4096 }, () => Math.floor(random.unit() * 36 ** 7).toString(36));
  for (const path of parquetPaths(folder, shape.sources)) {
    const data = Array.from({ length: shape.rowGroups * shape.rowsPerGroup }, () => {
      const count = Math.max(1, Math.round((shape.rowChars / 8) * Math.exp(0.8 * random.normal() - 0.32)));
      return Array.from({ length: count }, () => words[random.below(words.length)]).join(" ");
    });
    const bytes = parquetWriteBuffer({
      columnData: [{ name: "text", data, type: "STRING" }],
      rowGroupSize: shape.rowsPerGroup,
    });
    writeFileSync(path, new Uint8Array(bytes));
  }
}
