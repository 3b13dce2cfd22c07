/** What a fleet asks of a Kubernetes API server, through Kubernetes' own client library: an optional peer, loaded when a fleet goes there. */
import { BatchWeaveError } from "../../index.js";
import type { Manifest } from "./kubernetes.js";

/** Of `@kubernetes/client-node`, what is used here. */
interface ClientLibrary {
  readonly KubeConfig: new () => KubeConfig;
  readonly KubernetesObjectApi: { makeApiClient(config: KubeConfig): ObjectApi };
  readonly PatchStrategy: { readonly ServerSideApply: string; readonly MergePatch: string };
}

interface KubeConfig {
  /** KUBECONFIG, ~/.kube/config, or the account of the pod that it runs in; logins by plug-in too. */
  loadFromDefault(): void;
  getCurrentCluster(): { readonly server: string } | null;
}

interface ObjectApi {
  patch(
    object: object,
    pretty: undefined,
    dryRun: undefined,
    fieldManager: string,
    force: boolean | undefined,
    strategy: string,
  ): Promise<unknown>;
  read(object: object): Promise<unknown>;
}

const packageName = "@kubernetes/client-node";
/** Fields that we set are ours, even where another client set them last. */
const fieldManager = "batchweave-fleet";
const sentenceMax = 400;

/** An API server, and who we are there. */
export class KubernetesClient {
  readonly #api: ObjectApi;
  readonly #library: ClientLibrary;
  readonly #server: string;

  private constructor(library: ClientLibrary) {
    this.#library = library;
    const config = new library.KubeConfig();
    try {
      config.loadFromDefault();
    } catch (cause) {
      throw new BatchWeaveError(
        "ENGINE_FAILED",
        `Kubernetes' configuration cannot be read: ${lineOf(cause)}. Mend the file that KUBECONFIG names, or ~/.kube/config.`,
        {},
        cause,
      );
    }
    this.#server = config.getCurrentCluster()?.server ?? "nowhere";
    this.#api = library.KubernetesObjectApi.makeApiClient(config);
  }

  /** MISSING_PACKAGE where the library is not installed. */
  static async open(): Promise<KubernetesClient> {
    let library: ClientLibrary;
    try {
      library = (await import(packageName as string)) as ClientLibrary;
    } catch (cause) {
      throw new BatchWeaveError(
        "MISSING_PACKAGE",
        `A fleet on Kubernetes needs the package ${packageName}, which is not installed. Install it with: npm install ${packageName}@1 (2 needs Node 22). Or write manifests with fleet render, and apply them yourself.`,
        { package: packageName },
        cause,
      );
    }
    return new KubernetesClient(library);
  }

  /** Creates an object or changes what is there, field by field on the server: applying again with other numbers scales the jobs that run. */
  async apply(manifest: Manifest): Promise<void> {
    const strategy = this.#library.PatchStrategy.ServerSideApply;
    await this.#ask(manifest, () => this.#api.patch(manifest, undefined, undefined, fieldManager, true, strategy));
  }

  /** How many pods a job keeps running; undefined: there is no such job, or it has ended. */
  async parallelism(name: string, namespace: string): Promise<number | undefined> {
    const job = jobOf(name, namespace);
    const found = (await this.#ask(job, () => this.#api.read(job), true)) as JobObject | undefined;
    const isEnded = found?.status?.conditions?.some(
      ({ type, status }) => (type === "Complete" || type === "Failed") && status === "True",
    );
    return isEnded ? undefined : found?.spec?.parallelism;
  }

  /** Changes that. */
  async scale(name: string, namespace: string, parallelism: number): Promise<void> {
    const job = { ...jobOf(name, namespace), spec: { parallelism } };
    const strategy = this.#library.PatchStrategy.MergePatch;
    await this.#ask(job, () => this.#api.patch(job, undefined, undefined, fieldManager, undefined, strategy));
  }

  async #ask(
    { kind, metadata: { name } }: Pick<Manifest, "kind" | "metadata">,
    call: () => Promise<unknown>,
    mayBeMissing = false,
  ): Promise<unknown> {
    try {
      return await call();
    } catch (error) {
      const { code } = error as { readonly code?: unknown };
      if (mayBeMissing && code === 404) return undefined;
      const isAnswer = typeof code === "number";
      const what = isAnswer
        ? `refused ${kind} ${name} (${code}): ${answerOf(error as ApiError)}. Check your rights and quota there`
        : `does not answer: ${lineOf(error)}. Check the address and the context in KUBECONFIG`;
      throw new BatchWeaveError(
        "ENGINE_FAILED",
        `The Kubernetes API server at ${this.#server} ${what}.`,
        { server: this.#server, ...(isAnswer ? { status: code } : {}) },
        error,
      );
    }
  }
}

interface JobObject {
  readonly spec?: { readonly parallelism?: number };
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}

function jobOf(name: string, namespace: string): Pick<Manifest, "apiVersion" | "kind" | "metadata"> {
  return { apiVersion: "batch/v1", kind: "Job", metadata: { name, namespace, labels: {} } };
}

interface ApiError {
  readonly code: number;
  readonly body?: unknown;
}

/** The server's own sentence. Of an object that cannot be changed it prints all; then the fields are named instead. */
function answerOf({ body }: ApiError): string {
  let status = body as { readonly message?: string; readonly details?: { readonly causes?: readonly Cause[] } };
  if (typeof body === "string") {
    try {
      status = JSON.parse(body) as typeof status;
    } catch {
      return body.slice(0, sentenceMax);
    }
  }
  const fixed = (status?.details?.causes ?? []).filter(({ message }) => message?.includes("field is immutable"));
  if (fixed.length > 0)
    return `it is there with another ${fixed.map(({ field }) => field).join(", ")}, which cannot be changed: delete it first`;
  return (status?.message ?? "no reason given").replace(/\.$/, "").slice(0, sentenceMax);
}

interface Cause {
  readonly field?: string;
  readonly message?: string;
}

function lineOf(error: unknown): string {
  const { message, cause, code } = error as { message?: string; cause?: { message?: string }; code?: string };
  const text = message || cause?.message || code || String(error);
  return (text.split("\n")[0] as string).replace(/\.$/, "").slice(0, sentenceMax);
}
