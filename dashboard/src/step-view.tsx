/** One step, opened: who made it, its slices decoded, its samples, its notes. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ImageView, LogView, SliceView, StepView } from "../../src/dashboard/views.js";
import { useView } from "./api.js";
import * as show from "./format.js";
import { Card, Fact, Pending, Table } from "./parts.js";
import { linkTo } from "./route.js";
import { Costs } from "./sources-view.js";

export function StepPage(props: {
  readonly ns: string;
  readonly step: number | undefined;
  readonly log: LogView | undefined;
}): JSX.Element {
  const { ns, log } = props;
  const step = props.step ?? (log && log.steps.end > log.steps.trim ? log.steps.end - 1 : undefined);
  const asked = useView<StepView>(step === undefined ? undefined : `step?ns=${encodeURIComponent(ns)}&step=${step}`);
  const [cell, setCell] = useState({ row: 0, chunk: 0 });
  const [query, setQuery] = useState("");
  const view = asked.data;
  const isThis = view?.step === step;
  if (step === undefined) return <p class="note">Nothing is published yet.</p>;
  const samples = (view?.samples ?? []).filter(({ id, source }) =>
    `${source} ${id}`.toLowerCase().includes(query.toLowerCase()),
  );
  return (
    <>
      <div class="row">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            const typed = new FormData(event.currentTarget).get("step");
            if (/^\d{1,15}$/.test(String(typed))) location.hash = linkTo("step", ns, Number(typed));
          }}
        >
          <label>
            step <input key={step} id="search" name="step" inputMode="numeric" defaultValue={String(step)} />
          </label>
        </form>
        <span class="buttons">
          <a
            class="button"
            href={linkTo("step", ns, Math.max(log?.steps.trim ?? 0, step - 1))}
            id="earlier"
            aria-label="step before"
          >
            ←
          </a>
          <a
            class="button"
            href={linkTo("step", ns, Math.min((log?.steps.end ?? step + 2) - 1, step + 1))}
            id="later"
            aria-label="next step"
          >
            →
          </a>
        </span>
      </div>
      {!view || !isThis ? (
        <Pending asked={asked} />
      ) : (
        <>
          <div class="facts">
            <Fact label="producer" value={view.producer} hint={`epoch ${view.epoch}, batch ${view.seq}`} />
            <Fact label="made" value={view.createdMs === undefined ? "unknown" : show.moment(view.createdMs)} />
            <Fact label="stored" value={show.bytes(view.storedBytes)} />
            <Fact label="content" value={view.contentType} />
            <Fact label="samples" value={view.samples ? show.count(view.samplesTotal) : "not recorded"} />
          </div>
          <Card title="Slices" note="rows down, chunks across; choose one to look inside" wide>
            <div class="scroll" tabIndex={0} role="region" aria-label="slices">
              <div class="grid" style={{ "--columns": String(1 + Math.max(...view.slices.map(({ chunk }) => chunk))) }}>
                {view.slices.map(({ row, chunk, bytes, storedBytes, encoding }) => (
                  <button
                    key={`${row},${chunk}`}
                    type="button"
                    aria-pressed={row === cell.row && chunk === cell.chunk}
                    onClick={() => setCell({ row, chunk })}
                    title={`${show.bytes(bytes)}, ${show.bytes(storedBytes)} stored, ${encoding}`}
                  >
                    {row},{chunk}
                  </button>
                ))}
              </div>
            </div>
            {view.slicesMore > 0 && <p class="note">{`and ${show.count(view.slicesMore)} more`}</p>}
            <Preview ns={ns} step={step} row={cell.row} chunk={cell.chunk} />
          </Card>
          <Card
            title="Samples"
            note={
              view.samplesTotal > (view.samples?.length ?? 0)
                ? `the first ${show.count(view.samples?.length ?? 0)} of ${show.count(view.samplesTotal)}`
                : undefined
            }
            wide
          >
            {(view.samples?.length ?? 0) > 12 && (
              <input
                type="search"
                placeholder="find a sample"
                aria-label="find a sample"
                value={query}
                onInput={(event) => setQuery(event.currentTarget.value)}
              />
            )}
            <Table
              head={["source", "sample", "tokens", "row"]}
              numbers={[2, 3]}
              rows={samples
                .slice(0, 200)
                .map(({ source, id, tokens, row }) => [
                  source,
                  id,
                  show.count(tokens),
                  row === undefined ? "left out" : String(row),
                ])}
              empty={view.samples ? "None." : "Its producer recorded no samples."}
            />
          </Card>
          {view.costs && (
            <Card title="Cost by rank" note="over the mean of the batch">
              <Costs costs={view.costs} />
            </Card>
          )}
          <Card title="Stored as">
            <ul class="keys">
              {view.keys.map((key) => (
                <li key={key}>{key}</li>
              ))}
            </ul>
            {view.keysMore > 0 && <p class="note">{`and ${show.count(view.keysMore)} more`}</p>}
            {view.origin !== undefined && <p class="note">{`in ${view.origin}, which this log shares`}</p>}
            {view.user !== undefined && <pre>{JSON.stringify(view.user, null, 2)?.slice(0, 20_000)}</pre>}
          </Card>
        </>
      )}
    </>
  );
}

function Preview(props: {
  readonly ns: string;
  readonly step: number;
  readonly row: number;
  readonly chunk: number;
}): JSX.Element {
  const { ns, step, row, chunk } = props;
  const asked = useView<SliceView>(`slice?ns=${encodeURIComponent(ns)}&step=${step}&row=${row}&chunk=${chunk}`);
  const view = asked.data;
  if (!view) return <Pending asked={asked} />;
  const title = (
    <h3>
      Slice {row},{chunk}: {show.bytes(view.bytes)}
    </h3>
  );
  if (view.kind === "text")
    return (
      <>
        {title}
        <pre>
          {view.text}
          {view.truncated ? "…" : ""}
        </pre>
      </>
    );
  if (view.kind === "bytes")
    return (
      <>
        {title}
        <pre>
          {view.hex.replace(/(..)(?=.)/g, "$1 ")}
          {view.truncated ? " …" : ""}
        </pre>
      </>
    );
  if (view.kind === "samples")
    return (
      <>
        {title}
        <Table head={[`samples of ${view.source}`]} rows={view.ids.map((id) => [id])} empty="None." />
      </>
    );
  return (
    <>
      {title}
      {view.texts.length > 0 && (
        <div class="texts">
          {view.texts.map(({ sequence, tokens, ids, text, truncated }, i) => (
            <div key={i} class="text">
              <span class="note">{`sequence ${sequence}, ${show.count(tokens)} tokens`}</span>
              {text === undefined ? (
                <code>{`${ids.join(" ")}${tokens > ids.length ? " …" : ""}`}</code>
              ) : (
                <p>{`${text}${truncated ? "…" : ""}`}</p>
              )}
            </div>
          ))}
          {view.texts[0]?.text === undefined && (
            <p class="note">Start the dashboard with --tokenizer to read tokens as text.</p>
          )}
        </div>
      )}
      {view.images.length > 0 && (
        <div class="images">
          {view.images.map((image) => (
            <Picture key={image.index} image={image} />
          ))}
        </div>
      )}
      {view.imagesMore > 0 && <p class="note">{`and ${show.count(view.imagesMore)} more images`}</p>}
      <Table
        head={["tensor", "type", "shape", "range", "first values"]}
        rows={view.tensors.map((t) => [
          t.name,
          t.dtype,
          t.shape.join(" x "),
          `${t.min ?? "–"} … ${t.max ?? "–"}`,
          <code>{t.first.join(" ")}</code>,
        ])}
        empty="No tensor."
      />
    </>
  );
}

/** A file is shown by the browser, raw pixels are drawn. */
function Picture(props: { readonly image: ImageView }): JSX.Element {
  const { image } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [url, setUrl] = useState<string | undefined>(undefined);
  useEffect(() => {
    const bytes = Uint8Array.from(atob(image.data), (letter) => letter.charCodeAt(0));
    if (image.type !== "rgb") {
      const made = URL.createObjectURL(new Blob([bytes], { type: image.type }));
      setUrl(made);
      return () => URL.revokeObjectURL(made);
    }
    const pixels = new ImageData(image.width, image.height);
    for (let i = 0; i < image.width * image.height; i++) {
      pixels.data.set(bytes.subarray(3 * i, 3 * i + 3), 4 * i);
      pixels.data[4 * i + 3] = 255;
    }
    canvas.current?.getContext("2d")?.putImageData(pixels, 0, 0);
    return undefined;
  }, [image]);
  const label = `image ${image.index}, ${image.width} x ${image.height}`;
  if (image.type !== "rgb") return <img src={url} alt={label} title={label} />;
  return <canvas ref={canvas} width={image.width} height={image.height} role="img" aria-label={label} title={label} />;
}
