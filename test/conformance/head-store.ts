/** A store that follows a script: what appears, vanishes or fails at which call. It writes down every call, shortly: `get m3` is version 3, `b1` marker 1. */
import { BatchWeaveError } from "../../src/errors.js";
import type { Body, CreateOutcome, ListOptions, ListPage, ObjectStore } from "../../src/store/index.js";
import { MemoryStore } from "../../src/store/index.js";

/** What happens at the `nth` call (1 unless told) whose text is `on`. */
export interface HeadRule {
  readonly on: string;
  readonly nth?: number;
  /** Before the call takes effect, or after it did and before it is answered. */
  readonly when: "before" | "after";
  /** Objects that appear, by short key: the name of a body. */
  readonly put?: Readonly<Record<string, string>>;
  readonly remove?: readonly string[];
  /** The answer: a failure (never applied if `before`), or the outcome of a create. */
  readonly answer?: "unavailable" | CreateOutcome;
  /** Of a listing: keys that it does not show; and how many keys there are on the page, with more to come. */
  readonly hide?: readonly string[];
  readonly page?: number;
}

const short = (key: string): string => key.replace(/^([mb])[a-z]+\/0*(\d+)\.json$/, "$1$2");
const long = (key: string): string =>
  `${key.startsWith("m") ? "manifest" : "boundary"}/${key.slice(1).padStart(20, "0")}.json`;

export class HeadStore implements ObjectStore {
  readonly uri = "memory:case";
  readonly calls: string[] = [];
  readonly #store = new MemoryStore();
  readonly #bodies: Readonly<Record<string, string>>;
  readonly #rules: readonly HeadRule[];
  readonly #times = new Map<string, number>();

  constructor(bodies: Readonly<Record<string, string>>, rules: readonly HeadRule[]) {
    this.#bodies = bodies;
    this.#rules = rules;
  }

  /** Puts objects there, by short key. */
  async place(objects: Readonly<Record<string, string>>): Promise<void> {
    for (const [key, body] of Object.entries(objects))
      await this.#store.put(long(key), Buffer.from(this.#bodies[body] as string, "base64"));
  }

  get(key: string): Promise<Uint8Array | undefined> {
    return this.#call(`get ${short(key)}`, () => this.#store.get(key));
  }

  getRange(key: string, start: number, length: number): Promise<Uint8Array | undefined> {
    return this.#call(`range ${short(key)}`, () => this.#store.getRange(key, start, length));
  }

  async list(prefix: string, options?: ListOptions): Promise<ListPage> {
    const text = `list after ${short(options?.startAfter ?? "")}`;
    const page = await this.#call(text, () => this.#store.list(prefix, options));
    const rule = this.#rule(text);
    const shown = page.objects.filter(({ key }) => !rule?.hide?.includes(short(key)));
    return rule?.page === undefined ? { ...page, objects: shown } : { objects: shown.slice(0, rule.page), more: true };
  }

  async create(key: string, body: Body): Promise<CreateOutcome> {
    const text = `create ${short(key)}`;
    const outcome = await this.#call(text, () => this.#store.create(key, body));
    const answer = this.#rule(text)?.answer;
    return answer === undefined || answer === "unavailable" ? outcome : answer;
  }

  async put(key: string, body: Body): Promise<void> {
    await this.#call(`put ${short(key)}`, () => this.#store.put(key, body));
  }

  async delete(keys: readonly string[]): Promise<void> {
    await this.#call(`delete ${keys.map(short).join(" ")}`, () => this.#store.delete(keys));
  }

  async sync(key: string): Promise<void> {
    await this.#call(`sync ${short(key)}`, async () => {});
  }

  /** The rule of the call that was begun last under this text. */
  #rule(text: string): HeadRule | undefined {
    return this.#rules.find(({ on, nth = 1 }) => on === text && nth === this.#times.get(text));
  }

  async #call<T>(text: string, effect: () => Promise<T>): Promise<T> {
    this.calls.push(text);
    this.#times.set(text, (this.#times.get(text) ?? 0) + 1);
    const rule = this.#rule(text);
    if (rule?.when === "before") await this.#happen(rule);
    // An answer other than the call's own, before: it is never applied.
    const isApplied = !(rule?.when === "before" && rule.answer !== undefined);
    const result = isApplied ? await effect() : (undefined as T);
    if (rule?.when === "after") await this.#happen(rule);
    if (rule?.answer === "unavailable")
      throw new BatchWeaveError("STORE_UNAVAILABLE", `The script says so, of ${text}. Try again.`, {});
    return result;
  }

  async #happen({ put = {}, remove = [] }: HeadRule): Promise<void> {
    await this.place(put);
    await this.#store.delete(remove.map(long));
  }
}
