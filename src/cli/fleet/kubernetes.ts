/** A fleet on Kubernetes: what is applied, as plain typed objects. */
import { type Fleet, type Role, scalerRole } from "./role.js";

/** How the manifests are made. */
export interface KubernetesSettings {
  readonly namespace: string;
  readonly image: string;
  /** A secret whose entries become environment variables: the store's credentials. */
  readonly secret?: string | undefined;
  /** Files of the pipeline by name, mounted in `/pipeline`. None: the image has them. */
  readonly files?: Readonly<Record<string, string>> | undefined;
}

interface Metadata {
  readonly name: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** An object of the API. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: Metadata;
  readonly [field: string]: unknown;
}

/** Where the pipeline's files are in a container. */
export const mountPath = "/pipeline";
const metricsPort = 9464;
const userId = 10_001;
/** Pods that may fail before a job counts as failed: they are meant to be killed. */
const failuresMax = 1_000_000;
/** Input or configuration is at fault (docs/errors.md). */
const hopelessStatus = 2;

/**
 * A service account without any right, the pipeline's files, and a job for each role; with a scaler, also who may change those jobs. A job without a number of completions is a work queue: its pods are
 * equal, `parallelism` can be changed at any time, and once one of them ends with status 0, which it does only when all work is done, no more are started.
 */
export function kubernetesManifests({ name, roles }: Fleet, settings: KubernetesSettings): Manifest[] {
  const base = `batchweave-${name}`;
  const meta = (own: string, role?: string): Metadata => ({
    name: own,
    namespace: settings.namespace,
    labels: {
      "app.kubernetes.io/name": "batchweave",
      "app.kubernetes.io/instance": name,
      "app.kubernetes.io/managed-by": "batchweave-fleet",
      ...(role === undefined ? {} : { "app.kubernetes.io/component": role }),
    },
  });
  const files: Manifest[] = settings.files
    ? [{ apiVersion: "v1", kind: "ConfigMap", metadata: meta(base), data: settings.files }]
    : [];
  const account = (own: string): Manifest => ({
    apiVersion: "v1",
    kind: "ServiceAccount",
    metadata: meta(own),
    automountServiceAccountToken: false,
  });
  const names = roles.map((role) => jobName(name, role.name));
  return [
    account(base),
    ...files,
    ...(roles.some(isScaler)
      ? [account(`${base}-${scalerRole}`), ...scalerRights(meta(`${base}-${scalerRole}`), names)]
      : []),
    ...roles.map((role) => job(role, meta(jobName(name, role.name), role.name), base, settings)),
  ];
}

/** The job of a role. */
export function jobName(fleet: string, role: string): string {
  return `batchweave-${fleet}-${role}`;
}

const isScaler = ({ name }: Role): boolean => name === scalerRole;

/** The scaler may look at the jobs of this fleet and change them, and nothing else. */
function scalerRights(metadata: Metadata, jobs: readonly string[]): Manifest[] {
  const { name, namespace } = metadata;
  return [
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "Role",
      metadata,
      rules: [{ apiGroups: ["batch"], resources: ["jobs"], resourceNames: jobs, verbs: ["get", "patch"] }],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata,
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
      subjects: [{ kind: "ServiceAccount", name, namespace }],
    },
  ];
}

function job(role: Role, metadata: Metadata, account: string, settings: KubernetesSettings): Manifest {
  const { labels } = metadata;
  return {
    apiVersion: "batch/v1",
    kind: "Job",
    metadata,
    spec: {
      parallelism: role.processes,
      backoffLimit: failuresMax,
      podFailurePolicy: {
        rules: [
          { action: "FailJob", onExitCodes: { containerName: role.name, operator: "In", values: [hopelessStatus] } },
          { action: "Ignore", onPodConditions: [{ type: "DisruptionTarget", status: "True" }] },
        ],
      },
      template: { metadata: { labels }, spec: pod(role, account, settings, labels) },
    },
  };
}

function pod(role: Role, account: string, settings: KubernetesSettings, labels: Metadata["labels"]): object {
  const isMounted = settings.files !== undefined;
  const isPython = role.command.includes("-m");
  const hasMetrics = !isScaler(role);
  return {
    serviceAccountName: isScaler(role) ? `${account}-${scalerRole}` : account,
    automountServiceAccountToken: isScaler(role),
    restartPolicy: "Never",
    // Commands end within two seconds of a signal.
    terminationGracePeriodSeconds: 10,
    securityContext: {
      runAsNonRoot: true,
      runAsUser: userId,
      runAsGroup: userId,
      fsGroup: userId,
      seccompProfile: { type: "RuntimeDefault" },
    },
    // One node that dies takes few of a role with it.
    topologySpreadConstraints: [
      {
        maxSkew: 1,
        topologyKey: "kubernetes.io/hostname",
        whenUnsatisfiable: "ScheduleAnyway",
        labelSelector: { matchLabels: labels },
      },
    ],
    containers: [
      {
        name: role.name,
        image: settings.image,
        command: [...role.command, ...(hasMetrics ? ["--metrics", String(metricsPort)] : [])],
        ...(settings.secret === undefined ? {} : { envFrom: [{ secretRef: { name: settings.secret } }] }),
        resources: {
          requests: { cpu: String(role.cores), memory: quantity(role.memoryBytes) },
          limits: { memory: quantity(role.memoryBytes) },
        },
        securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
        ...(hasMetrics ? probes(isPython) : {}),
        ...(isMounted ? { volumeMounts: [{ name: "pipeline", mountPath, readOnly: true }] } : {}),
      },
    ],
    ...(isMounted ? { volumes: [{ name: "pipeline", configMap: { name: account } }] } : {}),
  };
}

/** Metrics are served on the loopback address only, so the container asks itself. A process that hangs does not answer. */
function probes(isPython: boolean): object {
  const place = `http://127.0.0.1:${metricsPort}/metrics`;
  const ask = `fetch("${place}").then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))`;
  const exec = {
    command: isPython
      ? ["python3", "-c", `import urllib.request; urllib.request.urlopen("${place}", timeout=5)`]
      : ["node", "-e", ask],
  };
  return {
    startupProbe: { exec, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 60 },
    livenessProbe: { exec, periodSeconds: 30, timeoutSeconds: 10, failureThreshold: 4 },
  };
}

/** In whole MiB. */
function quantity(bytes: number): string {
  return `${Math.max(1, Math.ceil(bytes / 2 ** 20))}Mi`;
}
