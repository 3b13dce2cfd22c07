/**
 * Property: the public names are exactly these, so that none comes or goes unnoticed.
 * Method: read the export lists of the public doors (types have no trace at run time), and compare the values with what
 * the module really has. After a wanted change: `npx vitest run test/public-api -u`.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, type TestContext, test } from "vitest";
import { parseFile, root, type SyntaxNode } from "./source-tree.js";

interface PublicNames {
  values: string[];
  types: string[];
}

function publicNames(path: string): PublicNames {
  const names: PublicNames = { values: [], types: [] };
  for (const node of parseFile(path).program.body as SyntaxNode[]) {
    if (node.type === "ExportAllDeclaration") throw new Error(`${path} must name what it exports one by one`);
    if (node.type !== "ExportNamedDeclaration") continue;
    for (const specifier of node.specifiers as { exportKind?: string; exported: { name: string } }[]) {
      const isType = node.exportKind === "type" || specifier.exportKind === "type";
      names[isType ? "types" : "values"].push(specifier.exported.name);
    }
    const declared = node.declaration as { id?: SyntaxNode; declarations?: { id: SyntaxNode }[] } | null;
    for (const { id } of declared?.declarations ?? (declared === null ? [] : [declared])) {
      if (id?.name !== undefined) names[node.exportKind === "type" ? "types" : "values"].push(id.name);
    }
  }
  return { values: names.values.sort(), types: names.types.sort() };
}

async function checkedNames(context: TestContext, path: string): Promise<PublicNames> {
  if (!existsSync(join(root, path))) context.skip(`${path} is not there yet`);
  const names = publicNames(path);
  const module = await import(/* @vite-ignore */ join(root, path));
  expect(Object.keys(module).sort()).toEqual(names.values);
  return names;
}

test("batchweave", async (context) => {
  const names = await checkedNames(context, "src/index.ts");
  expect(names).toMatchInlineSnapshot(`
    {
      "types": [
        "AbortUploadsOptions",
        "AppendOptions",
        "Axis",
        "AzureStoreSettings",
        "BatchInfo",
        "BatchListing",
        "BatchSlices",
        "BlockSample",
        "Body",
        "CadenceSettings",
        "CallOptions",
        "Cell",
        "CheckpointOptions",
        "ChunkLayout",
        "ConsumerCheckpointOptions",
        "ConsumerOptions",
        "ConsumerSettings",
        "CreateOutcome",
        "Cursor",
        "DeadCount",
        "DeadCounts",
        "DeadObject",
        "DeadReason",
        "DeleteOptions",
        "Dtype",
        "Durability",
        "Env",
        "ErrorCode",
        "ErrorDetails",
        "FieldJoin",
        "FileStore",
        "FileStoreSettings",
        "FindResult",
        "FindSettings",
        "ForkSettings",
        "GcsStoreSettings",
        "GivenMesh",
        "Grid",
        "HedgingSettings",
        "InfoOptions",
        "JobEnvironment",
        "JoinOptions",
        "Joins",
        "Labels",
        "LagSettings",
        "LineageSample",
        "ListNamespacesOptions",
        "ListOptions",
        "ListPage",
        "ListedObject",
        "LiveCheckpoint",
        "Mesh",
        "MeshPlace",
        "NamespaceInfo",
        "NamespaceListing",
        "NamespaceOptions",
        "NamespaceSettings",
        "ObjectStore",
        "Order",
        "Policy",
        "ProbeCase",
        "ProbeReport",
        "ProbeSettings",
        "ProducerInfo",
        "ProducerOptions",
        "ProducerSettings",
        "Pulse",
        "PulseEntry",
        "PulseRole",
        "PulseSettings",
        "RankOrder",
        "ReclaimLoopObserver",
        "ReclaimLoopSettings",
        "ReclaimReport",
        "ReclaimSettings",
        "Remedy",
        "RetrySettings",
        "RowsPerRank",
        "S3Credentials",
        "S3Encryption",
        "S3StoreSettings",
        "SampleEntry",
        "SampleMatch",
        "SampleSummary",
        "SampleTable",
        "Share",
        "SkipRange",
        "Slice",
        "SliceEncoding",
        "SliceInfo",
        "SlicePreview",
        "StartFrom",
        "StoreCall",
        "StoreObserver",
        "StoreOp",
        "StoreSettings",
        "Tensor",
        "TensorFile",
        "TensorPreview",
        "TensorValues",
        "Ticket",
        "VerifyCode",
        "VerifyCounts",
        "VerifyProblem",
        "VerifyReport",
        "VerifySettings",
        "WriteOptions",
      ],
      "values": [
        "BatchWeaveError",
        "Consumer",
        "MemoryStore",
        "Metrics",
        "Namespace",
        "Producer",
        "assertSafe",
        "availableEncodings",
        "checkSample",
        "createNamespace",
        "decodeSafetensors",
        "decodeSampleTable",
        "deleteNamespace",
        "describeMesh",
        "encodeSafetensors",
        "encodeSampleBlock",
        "errorCodes",
        "isBatchWeaveError",
        "joinRows",
        "joinShare",
        "joinTensors",
        "listNamespaces",
        "makeCursor",
        "openFileStore",
        "openNamespace",
        "openStore",
        "parseCursor",
        "parseSkip",
        "pipelineJoins",
        "placeRank",
        "previewSlice",
        "probePrefix",
        "probeStore",
        "safetensorsType",
        "sampleBlockType",
        "systemEnv",
        "tensorValues",
        "withHedging",
        "withMetrics",
        "withPrefix",
        "withRetry",
        "worldSize",
      ],
    }
  `);
});

test("batchweave/plan", async (context) => {
  const names = await checkedNames(context, "src/plan/index.ts");
  expect(names).toMatchInlineSnapshot(`
    {
      "types": [
        "BatchNotes",
        "CostFunction",
        "DGraph",
        "Fault",
        "IterableItem",
        "LoadPlan",
        "MegatronSample",
        "MixContext",
        "MixSchedule",
        "Model",
        "OpenIterable",
        "PackingMethod",
        "Pipeline",
        "PipelineAudit",
        "PipelineSpec",
        "Placement",
        "PlannedBatch",
        "PreparedImage",
        "PreparedSample",
        "RawImage",
        "RawPlanner",
        "RunOptions",
        "RunResult",
        "RunSettings",
        "RunSummary",
        "SampleCost",
        "SampleMeta",
        "Source",
        "SourceFigures",
        "SourceSettings",
        "Strategy",
        "TarSample",
        "Transform",
        "TransformContext",
        "TransformFunction",
        "Weights",
      ],
      "values": [
        "ClientPlaceTree",
        "OpenPipeline",
        "SeededRandom",
        "arrivalAssignment",
        "auditPipeline",
        "backboneCost",
        "balanceBins",
        "callbackMix",
        "constructorDoPlan",
        "costColumns",
        "cropImage",
        "decodeImage",
        "definePipeline",
        "describeSources",
        "describeSummary",
        "encoderCost",
        "finishSlice",
        "imbalance",
        "iterable",
        "jsonl",
        "loadPipeline",
        "loaderDoPlan",
        "megatron",
        "models",
        "packSequences",
        "parquet",
        "patchifyImage",
        "patchifyImages",
        "placeImage",
        "placed",
        "placementFigures",
        "resizeImage",
        "runPipeline",
        "stagedMix",
        "staticMix",
        "sumCosts",
        "summaryBuffer",
        "tokenCost",
        "tokenize",
        "transform",
        "videoFrames",
        "warmUpMix",
        "webdataset",
      ],
    }
  `);
});
