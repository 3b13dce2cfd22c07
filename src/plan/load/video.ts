/** A ready-made transform for videos: frames as raw RGB, through the ffmpeg program where it is installed. */
import { spawn } from "node:child_process";
import { BatchWeaveError } from "../../index.js";
import { fieldOf } from "./sample-field.js";
import { type Placement, type Transform, transform } from "./transform.js";

/** Settings of {@link videoFrames}. */
interface VideoSettings {
  /** Field of the sample that holds the encoded video. Default "video". */
  readonly field?: string | undefined;
  /** Frames a second. Default 1. */
  readonly framesPerSecond?: number | undefined;
  /** Frames at most. Default 16. */
  readonly framesMax?: number | undefined;
  /** Size of a frame. Default 224 x 224. */
  readonly width?: number | undefined;
  readonly height?: number | undefined;
  readonly at?: Placement | undefined;
}

/** Behind {@link videoFrames}: `{ frames, width, height, data }` in place of the file. */
export async function decodeVideo(value: Readonly<Record<string, unknown>>, settings: VideoSettings): Promise<unknown> {
  const { field = "video", framesPerSecond = 1, framesMax = 16, width = 224, height = 224 } = settings;
  const bytes = fieldOf(value, field);
  if (!(bytes instanceof Uint8Array)) throw new TypeError(`the field ${field} is not an encoded video`);
  const filter = `fps=${framesPerSecond},scale=${width}:${height}`;
  const args = [
    "-v",
    "error",
    "-i",
    "pipe:0",
    "-vf",
    filter,
    "-frames:v",
    String(framesMax),
    "-f",
    "rawvideo",
    "-pix_fmt",
    "rgb24",
    "pipe:1",
  ];
  const data = await pipeThrough("ffmpeg", args, bytes);
  return { ...value, [field]: { frames: Math.floor(data.length / (3 * width * height)), width, height, data } };
}

function pipeThrough(command: string, args: readonly string[], input: Uint8Array): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] });
    const [out, errors]: [Buffer[], Buffer[]] = [[], []];
    child.stdout.on("data", (chunk: Buffer) => out.push(chunk));
    child.stderr.on("data", (chunk: Buffer) => errors.push(chunk));
    // The program may stop reading once it has its frames.
    child.stdin.on("error", () => {});
    child.on("error", (cause) =>
      reject(
        new BatchWeaveError(
          "MISSING_PACKAGE",
          `Video transforms need the program ${command}, which cannot be started.`,
          { command },
          cause,
        ),
      ),
    );
    child.on("close", (code) => {
      if (code === 0) resolve(Uint8Array.from(Buffer.concat(out)));
      else reject(new Error(`${command}: ${Buffer.concat(errors).toString("utf8").trim() || `exit code ${code}`}`));
    });
    child.stdin.end(input);
  });
}

/** Frames of a video as raw RGB. */
export function videoFrames(settings: VideoSettings = {}): Transform {
  const { at, ...options } = settings;
  return transform(new URL("./video.js", import.meta.url), "decodeVideo", options, { at });
}
