"""What `fleet up --on kubernetes` applies is what a Kubernetes API server takes; applying again scales, and so does the autoscaler with the rights it is given.

Method: a real kube-apiserver and etcd on the loopback address (both build from Go modules), the client library, and kubectl to look from outside. There is no
kubelet here: no pod runs; the scaler's command is run by hand with its pod's token. Set BATCHWEAVE_KUBE_BIN to the folder that holds kube-apiserver and etcd.
"""
from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from batchweave import create_namespace  # noqa: E402
from engines.fleet_pipeline import write_pipeline, write_plan  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
_PATH = os.pathsep.join([os.environ.get("BATCHWEAVE_KUBE_BIN", ""), os.environ.get("PATH", "")])


def _missing() -> str | None:
    absent = [name for name in ("kube-apiserver", "etcd", "kubectl", "openssl") if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"{', '.join(absent)} not found: build them with Go and set BATCHWEAVE_KUBE_BIN"
    is_there = os.path.isdir(os.path.join(ROOT, "node_modules", "@kubernetes", "client-node"))
    return None if is_there else "the client library is not installed: npm install --no-save --ignore-scripts @kubernetes/client-node@1"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@unittest.skipIf(_missing() is not None, _missing() or "")
class KubernetesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="batchweave-kube-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.daemons: list[Any] = []
        self.addCleanup(self.stop)
        self.start()

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def daemon(self, *command: str) -> None:
        with open(self.path(f"{command[0]}.out"), "wb") as log:
            self.daemons.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PATH": _PATH}, executable=shutil.which(command[0], path=_PATH)))

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.kill()
            daemon.wait()

    def start(self) -> None:
        client, peer, port = _free_port(), _free_port(), _free_port()
        etcd = f"http://127.0.0.1:{client}"
        self.daemon(
            "etcd", "--data-dir", self.path("etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
            "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster", f"default=http://127.0.0.1:{peer}",
        )
        subprocess.run(["openssl", "genrsa", "-out", self.path("sa.key"), "2048"], check=True, capture_output=True)
        with open(self.path("tokens.csv"), "w", encoding="ascii") as file:
            file.write('secret,admin,1,"system:masters"\n')
        self.daemon(
            "kube-apiserver", f"--etcd-servers={etcd}", f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={self.path('certs')}",
            f"--token-auth-file={self.path('tokens.csv')}", "--authorization-mode=RBAC", "--service-account-issuer=https://localhost",
            f"--service-account-key-file={self.path('sa.key')}", f"--service-account-signing-key-file={self.path('sa.key')}", "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        )
        self.server = f"https://127.0.0.1:{port}"
        self.write_config("kubeconfig", "secret")
        until = time.monotonic() + 180
        while self.kubectl("get", "--raw", "/readyz").returncode != 0:
            if time.monotonic() > until or any(daemon.poll() is not None for daemon in self.daemons):
                self.fail("".join(open(self.path(f"{name}.out"), errors="replace").read()[-1500:] for name in ("etcd", "kube-apiserver")))
            time.sleep(1)
        self.kubectl("create", "namespace", "default")

    def write_config(self, name: str, token: str) -> str:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        with open(self.path(name), "w", encoding="ascii") as file:
            json.dump(config, file)
        return self.path(name)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _PATH, "KUBECONFIG": self.path("kubeconfig")}

    def kubectl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["kubectl", *arguments], env=self.environment(), capture_output=True, text=True, check=False, timeout=60)

    def up(self, *options: str) -> "subprocess.CompletedProcess[str]":
        main = os.path.join(ROOT, "dist", "src", "cli", "main.js")
        command = ["node", main, "fleet", "up", write_pipeline(self.folder, ROOT), "--on", "kubernetes", "--image", "batchweave:1", *options]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False, timeout=120)

    def test_manifests_are_taken_and_applying_again_scales(self) -> None:
        for count in ("3", "7"):
            found = self.up("--construct", count, "--secret", "s3")
            self.assertEqual(found.returncode, 0, found.stderr)
            job = json.loads(self.kubectl("get", "job", "batchweave-pipeline-construct", "-o", "json").stdout)
            self.assertEqual(job["spec"]["parallelism"], int(count))
        self.assertNotIn("completions", job["spec"])
        names = self.kubectl("get", "job,configmap,serviceaccount", "-l", "app.kubernetes.io/instance=pipeline", "-o", "name").stdout.split()
        self.assertEqual(len(names), 4)
        # The server says no more than it must: nothing that we wrote was unknown to it.
        self.kubectl("create", "namespace", "other")
        text = subprocess.run(
            ["node", os.path.join(ROOT, "dist/src/cli/main.js"), "fleet", "render", self.path("pipeline.mjs"), "--on", "kubernetes", "--image", "x", "--namespace", "other"],
            env=self.environment(), capture_output=True, text=True, check=True,
        ).stdout
        strict = subprocess.run(
            ["kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-"], env=self.environment(), input=text, capture_output=True, text=True, check=False
        )
        self.assertEqual(strict.returncode, 0, strict.stderr)

    def test_the_scaler_carries_out_advice_with_the_rights_of_its_pod_and_no_others(self) -> None:
        plan = write_plan(self.folder)
        found = self.up("--autoscale", "--plan", plan, "--interval", "1")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(self.parallelism(), 1)
        account = "batchweave-pipeline-scale"
        token = self.kubectl("create", "token", account).stdout.strip()
        log = create_namespace(f"file://{self.folder}/log", 2, 1, 2)
        command = json.loads(self.kubectl("get", "job", account, "-o", "json").stdout)["spec"]["template"]["spec"]["containers"][0]["command"]
        self.assertEqual(command[:4], ["batchweave", "fleet", "scale", "/pipeline/pipeline.mjs"])
        own = [word.replace("/pipeline/", f"{self.folder}/") for word in command[1:]]
        environment = {**self.environment(), "KUBECONFIG": self.write_config("scaler", token)}
        main = os.path.join(ROOT, "dist", "src", "cli", "main.js")
        scaler = subprocess.Popen(["node", main, *own], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert scaler.stdout is not None
        line = scaler.stdout.readline()
        self.assertEqual(line, "construct: 1 -> 2\n", "" if line else scaler.communicate()[1])
        self.assertEqual(self.parallelism(), 2)
        # The log is complete: no process is needed any more.
        log.end_log()
        _, errors = scaler.communicate(timeout=120)
        self.assertEqual(scaler.returncode, 0, errors)
        for verb, what in (("delete", "jobs"), ("create", "jobs"), ("get", "secrets")):
            self.assertEqual(self.kubectl("--token", token, "auth", "can-i", verb, what).stdout.strip(), "no")

    def parallelism(self) -> int:
        return int(json.loads(self.kubectl("get", "job", "batchweave-pipeline-construct", "-o", "json").stdout)["spec"]["parallelism"])

    def test_a_server_that_does_not_answer_and_a_quota_are_one_sentence(self) -> None:
        self.kubectl("create", "quota", "few", "--hard=count/jobs.batch=0")
        # No controller manager runs here, whose work this is.
        status = {"status": {"hard": {"count/jobs.batch": "0"}, "used": {"count/jobs.batch": "0"}}}
        patched = self.kubectl("patch", "quota", "few", "--subresource=status", "--type=merge", "-p", json.dumps(status))
        self.assertEqual(patched.returncode, 0, patched.stderr)
        # The server learns of the quota in its own time.
        until = time.monotonic() + 60
        while "exceeded quota" not in (found := self.up()).stderr and time.monotonic() < until:
            self.kubectl("delete", "job", "--all")
        self.assertRegex(found.stderr, r"^error\[ENGINE_FAILED\]: The Kubernetes API server at https:\S+ refused Job batchweave-pipeline-\S+ \(403\): .*exceeded quota")
        self.write_config("kubeconfig", "wrong")
        self.assertRegex(self.up().stderr, r"^error\[ENGINE_FAILED\]: The Kubernetes API server at \S+ refused ServiceAccount \S+ \(401\): Unauthorized\. Check")
        self.stop()
        self.assertRegex(self.up().stderr, r"^error\[ENGINE_FAILED\]: The Kubernetes API server at \S+ does not answer: .*ECONNREFUSED")


if __name__ == "__main__":
    unittest.main()
