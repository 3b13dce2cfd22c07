"""S3, GCS and Azure through obstore (extra "cloud"). docs/design/0007-python-object-stores.md says why that one.

Credentials and endpoints come from the environment, as the clouds' own tools read them. obstore's own retries are off: a
conditional create that is sent twice would call its own success a loss; everything else is retried by RetryingStore.
"""
from __future__ import annotations

import json
import os
import re
from typing import Any, Callable, Iterator, Sequence, TypeVar
from urllib.parse import urlsplit

from ..errors import BatchWeaveError, invalid
from .object_store import LIST_PAGE_MAX, WHOLE_BYTES_MAX, Body, assert_key, join_body, too_large, without_secrets

T = TypeVar("T")

_S3_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT with its key, SAS or login",
}
#: Answers with a status that says too little: what they mean, and what helps. The same as in src/store/s3/s3-failure.ts.
_EXPIRED = "STORE_DENIED", "the credentials have expired", "renew them and start again"
_REFUSED = "STORE_DENIED", "the credentials were not accepted", ""
_NO_BUCKET = "INVALID_ARGUMENT", "there is no such bucket", "create it, or correct the URI or the endpoint"
_ANSWERS = {
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": _REFUSED,
    "InvalidSecurity": _REFUSED,
    "AuthorizationHeaderMalformed": _REFUSED,
    "NoSuchBucket": _NO_BUCKET,
    "ContainerNotFound": _NO_BUCKET,
}
_SECRET_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN")
#: No later try helps: a create that is not conditional is none.
_IS_UNSAFE = re.compile(r"status code: 501\b|<Code>NotImplemented</Code>")
#: A create that certainly lost: S3 and GCS say 412, Azure 409 with a code of its own.
_IS_TAKEN = re.compile(r"status code: 412\b|<Code>BlobAlreadyExists</Code>")
_IS_HTML = re.compile(r"<html|<!doctype html", re.IGNORECASE)
#: How obstore says that what came under status 200 is no answer of S3.
_IS_NO_STORE = re.compile(r"non-partial response|(ETag|Content-Length) Header missing|Got invalid \w+ response")


def open_cloud_store(uri: str, **settings: Any) -> "CloudStore":
    """Opens s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. `settings` go to obstore's store."""
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not bucket or re.search(r"[@:?#]", rest):
        # A user, a key or a query may be a secret: it is not repeated.
        raise invalid(f'"{without_secrets(uri)}" does not name a bucket; write {scheme.lower()}://bucket/prefix, without user, "?" or "#"')
    if scheme.lower() == "s3" and not _S3_BUCKET.fullmatch(bucket):
        raise invalid(f'"{bucket}" in {uri} is not a bucket\'s name (3 to 63 of a-z 0-9 . -); write s3://bucket/prefix', uri=uri)
    try:
        from obstore import store as stores
    except ImportError:
        raise BatchWeaveError(
            "MISSING_PACKAGE",
            f'{scheme.lower()}:// needs the package obstore: run pip install obstore (the extra "cloud").',
            {"package": "obstore"},
        ) from None
    make: dict[str, Callable[..., Any]] = {"s3": _s3, "gs": _gcs, "az": _azure}
    try:
        backend = make[scheme.lower()](stores, bucket, prefix or None, settings)
    except BatchWeaveError:
        raise
    except Exception as error:  # nothing was asked of the store yet: it is the settings, or variables of the environment
        reason = str(error).partition("\n")[0].rstrip(".")
        raise invalid(f"{uri} cannot be opened: {reason}. Correct the settings or the environment's variables.", uri=uri) from error
    return CloudStore(backend, f"{scheme.lower()}://{bucket}/{prefix}".rstrip("/"))


#: Where no server listens. Of a redirect to another host obstore keeps the session token, and it cannot be told not to follow: so whatever is
#: not the store itself, or where credentials come from, is sent here.
_NOWHERE = "http://127.0.0.1:1"
_OWN_HOSTS = "amazonaws.com,amazonaws.com.cn,amazontrust.com,169.254.169.254,169.254.170.2,169.254.170.23,fd00:ec2::254"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def _client(endpoint: str | None, own_hosts: str | None = None) -> dict[str, Any]:
    options: dict[str, Any] = {"timeout": "300s", "connect_timeout": "10s"}
    if endpoint:
        _check_endpoint(endpoint)
    # A user with a proxy of their own has it decide where requests may go.
    if own_hosts is not None and not any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        host = urlsplit(endpoint).hostname if endpoint else None
        options["proxy_url"] = _NOWHERE
        options["proxy_excludes"] = f"{host},{own_hosts}" if host else own_hosts
    if endpoint and endpoint.startswith("http://"):
        options["allow_http"] = True
    return options


def _check_endpoint(endpoint: str) -> None:
    """obstore panics at one that is no URL, with the first request."""
    try:
        parts = urlsplit(endpoint)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and not re.search(r"\s", endpoint)
    except ValueError:
        is_url = False
    if not is_url:
        raise ValueError(f'the endpoint "{endpoint}" is not a URL such as http://localhost:9000')


#: Settings of obstore that make a profile of the environment unnecessary.
_BRINGS_CREDENTIALS = {"credential_provider", "access_key_id", "aws_access_key_id", "skip_signature", "aws_skip_signature"}


def _of_profile(name: str) -> dict[str, Any]:
    """Credentials and region of a profile in ~/.aws: obstore reads none, and would ask the machine's own role without a word."""
    try:
        import boto3  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise BatchWeaveError(
            "MISSING_PACKAGE",
            f"The AWS profile {name!r} (AWS_PROFILE, or the setting profile) is read by the package boto3: run pip install boto3. Or set the variables of it: aws configure "
            f"export-credentials --profile {name} --format env.",
            {"package": "boto3"},
        ) from None
    session = boto3.Session(profile_name=name)
    env = os.environ
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or session.region_name
    return {"credential_provider": Boto3CredentialProvider(session), **({"region": region} if region else {})}


def _s3(stores: Any, bucket: str, prefix: str | None, settings: dict[str, Any]) -> Any:
    env = os.environ
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or env.get("S3_ENDPOINT_URL")
    endpoint = settings.get("endpoint") or endpoint
    given: dict[str, Any] = {
        "region": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
        # Slices and manifests carry checksums of their own; hashing every body again for the signature halves the speed of a put.
        "unsigned_payload": True,
    }
    if endpoint:
        given["endpoint"] = endpoint
    settings = dict(settings)
    named = settings.pop("profile", None)
    profile = named or (None if env.get("AWS_ACCESS_KEY_ID") or _BRINGS_CREDENTIALS & settings.keys() else env.get("AWS_PROFILE"))
    if profile:
        given.update(_of_profile(profile))
    return stores.S3Store(
        bucket, prefix=prefix, client_options=_client(endpoint, _OWN_HOSTS), retry_config={"max_retries": 0}, **{**given, **settings}
    )


def _gcs(stores: Any, bucket: str, prefix: str | None, settings: dict[str, Any]) -> Any:
    endpoint = os.environ.get("STORAGE_EMULATOR_HOST")
    given: dict[str, Any] = {}
    if endpoint:
        # As Google's own libraries do: another server, and no account to sign in with.
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        anonymous = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        given = {"service_account_key": json.dumps(anonymous)}
    return stores.GCSStore(
        bucket, prefix=prefix, client_options=_client(endpoint), retry_config={"max_retries": 0}, **{**given, **settings}
    )


def _azure(stores: Any, container: str, prefix: str | None, settings: dict[str, Any]) -> Any:
    env = os.environ
    parts = dict(
        part.split("=", 1) for part in env.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";") if "=" in part
    )
    found = {
        "account_name": parts.get("AccountName") or env.get("AZURE_STORAGE_ACCOUNT") or env.get("AZURE_STORAGE_ACCOUNT_NAME"),
        "account_key": parts.get("AccountKey") or env.get("AZURE_STORAGE_KEY") or env.get("AZURE_STORAGE_ACCOUNT_KEY"),
        "sas_token": parts.get("SharedAccessSignature") or env.get("AZURE_STORAGE_SAS_TOKEN"),
        "endpoint": parts.get("BlobEndpoint") or env.get("AZURE_STORAGE_BLOB_ENDPOINT"),
    }
    given = {name: value for name, value in found.items() if value}
    if "account_name" not in given and "account_name" not in settings:
        raise invalid(
            f"no storage account for az://{container}; set AZURE_STORAGE_ACCOUNT (and a key, a SAS or a login) or "
            "AZURE_STORAGE_CONNECTION_STRING"
        )
    return stores.AzureStore(
        container,
        prefix=prefix,
        client_options=_client(given.get("endpoint")),
        retry_config={"max_retries": 0},
        **{**given, **settings},
    )


class CloudStore:
    """An object store behind obstore. Made by open_cloud_store."""

    def __init__(self, backend: Any, uri: str) -> None:
        import obstore
        from obstore import exceptions

        self.uri = uri
        self._o = obstore
        self._e = exceptions
        self._backend = backend
        self._absent = (exceptions.NotFoundError, FileNotFoundError)

    def create(self, key: str, body: Body) -> str:
        """Conditional create (If-None-Match: *), sent once: "created", "exists" or "unknown"."""
        assert_key(key)
        try:
            self._o.put(self._backend, key, join_body(body), mode="create", use_multipart=False)
            return "created"
        except (self._e.AlreadyExistsError, self._e.PreconditionError) as error:
            return self._verdict(key, str(error))
        except (self._e.PermissionDeniedError, self._e.UnauthenticatedError) as error:
            raise self._failure(error, "create", key) from error
        except self._absent as error:
            raise self._failure(error, "create", key) from error
        except self._e.BaseError as error:
            if _IS_UNSAFE.search(str(error)):
                raise self._failure(error, "create", key) from error
            return "unknown"

    def _verdict(self, key: str, text: str) -> str:
        """obstore says "already exists" for 412 and for 409 alike, and S3's 409 means that another request is still in flight."""
        if _IS_TAKEN.search(text):
            return "exists"
        try:
            return "exists" if self._exists(key) else "unknown"
        except BatchWeaveError:
            return "unknown"  # a look that fails says nothing about the create

    def put(self, key: str, body: Body) -> None:
        """Unconditional write of an object whose key no other writer uses for other bytes."""
        assert_key(key)
        self._call("write", key, lambda: self._o.put(self._backend, key, join_body(body), use_multipart=False))

    def get(self, key: str) -> bytes | None:
        """The whole object, or None."""
        assert_key(key)
        try:
            return self._call("read", key, lambda: self._whole(key))
        except _Absent:
            return None

    def _whole(self, key: str) -> bytes:
        answer = self._o.get(self._backend, key)
        if answer.meta["size"] > WHOLE_BYTES_MAX:
            raise too_large(f"{self.uri}/{key}", answer.meta["size"])
        found = b"".join(bytes(piece) for piece in self._bounded(answer, key))
        # Every object of S3 has an ETag; the page of a proxy or a captive portal has none, and is no manifest.
        if self.uri.startswith("s3:") and answer.meta["e_tag"] is None:
            what = self._foreign("200", found[:512].decode(errors="replace"))
            raise BatchWeaveError("STORE_UNAVAILABLE", f"Cannot read {self.uri}/{key}: {what}.", {"key": key})
        return found

    def _bounded(self, answer: Any, key: str) -> Iterator[Any]:
        """What is not announced, or goes on beyond what was, is not read to its end."""
        got = 0
        for piece in answer.stream(min_chunk_size=1024 * 1024):
            got += len(piece)
            if got > WHOLE_BYTES_MAX:
                raise too_large(f"{self.uri}/{key}", got)
            yield piece

    def _foreign(self, status: str, text: str) -> str:
        """As foreignText in src/store/s3/s3-failure.ts: something else answered."""
        where = getattr(self._backend, "config", {}).get("endpoint") or "the server"
        kind = "an HTML page" if _IS_HTML.search(text) else "something else"
        return f"{where} answered {status} with {kind} where an object store would not; check the endpoint and proxies in between"

    def get_range(self, key: str, start: int, length: int) -> Any:
        """Bytes [start, start + length), fewer where the object ends; a view of the client's buffer, not a copy."""
        assert_key(key)
        if start < 0 or length < 0:
            raise invalid(f"The range {start}+{length} of {key} is not two whole numbers.", key=key)
        try:
            if length == 0:
                return b"" if self._exists(key) else None
            return self._call(
                "read", key, lambda: memoryview(self._o.get_range(self._backend, key, start=start, length=length))
            )
        except _Absent:
            return None
        except BatchWeaveError as error:
            if not _is_range_past_the_end(error):
                raise
            return b""

    def list(self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_MAX) -> tuple[list[str], bool]:
        """One page of keys in byte order, and whether there are more."""
        folder = prefix[: prefix.rfind("/") + 1].rstrip("/")

        def page() -> list[str]:
            keys: list[str] = []
            chunk = min(limit + 1, LIST_PAGE_MAX)
            for metas in self._o.list(self._backend, prefix=folder or None, offset=start_after or None, chunk_size=chunk):
                keys += [meta["path"] for meta in metas if meta["path"].startswith(prefix) and meta["path"] > start_after]
                if len(keys) > limit:
                    break
            return keys

        keys = self._call("list", prefix, page)
        keys.sort()
        return keys[:limit], len(keys) > limit

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes; absent keys are fine."""
        for key in keys:
            assert_key(key)
        for at in range(0, len(keys), LIST_PAGE_MAX):
            page = list(keys[at : at + LIST_PAGE_MAX])
            try:
                self._call("delete", page[0], lambda: self._o.delete(self._backend, page))
            except _Absent:
                # A store that deletes one by one stopped at the first that is absent.
                for key in page:
                    self._delete_one(key)

    def _delete_one(self, key: str) -> None:
        try:
            self._call("delete", key, lambda: self._o.delete(self._backend, key))
        except _Absent:
            pass

    def _exists(self, key: str) -> bool:
        try:
            self._call("look at", key, lambda: self._o.head(self._backend, key))
            return True
        except _Absent:
            return False

    def _call(self, doing: str, key: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._absent as error:
            if re.search(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>", str(error)):
                raise self._failure(error, doing, key) from error
            raise _Absent from None
        except self._e.BaseError as error:
            raise self._failure(error, doing, key) from error

    def _without_keys(self, text: str) -> str:
        """A server may send back the headers that it got, and with them keys, tokens and signatures."""
        config = getattr(self._backend, "config", {})
        for name, value in [*config.items(), *((name, os.environ.get(name, "")) for name in _SECRET_VARIABLES)]:
            if isinstance(value, str) and len(value) >= 8 and re.search(r"key|token|secret|signature|sas|password", name, re.IGNORECASE):
                text = text.replace(value, "…")
        return re.sub(r"(?i)(signature=|credential=|security-token[\"':= ]+|authorization[\"':= ]+)[^\s,<>&\"']+", r"\1…", text)

    def _failure(self, error: Exception, doing: str, key: str) -> BatchWeaveError:
        text = self._without_keys(str(error).strip() or type(error).__name__)
        first = re.sub(r" in [0-9.]+ ?[mµn]?s\b", "", text.splitlines()[0])[:300]
        answer = re.search(r"<Code>([^<]{1,80})</Code>", text)
        variables = _CREDENTIALS[self.uri.partition(":")[0]]
        code, what, remedy = "STORE_UNAVAILABLE", first, "try again"
        if re.search(r"169\.254\.169\.254|metadata\.google|/latest/api/token", text):
            # Without credentials obstore asks the machine's own service for them. One that refuses has none; one that does not
            # answer may yet: that is tried again.
            code = "STORE_DENIED" if re.search(r"status code: 40[0134]", text) else code
            what = "there are no credentials, and the machine's own service gave none"
            remedy = f"set {variables}, or run with a role"
        elif answer and answer[1] in _ANSWERS:
            code, what, remedy = _ANSWERS[answer[1]]
            what, remedy = f"{what} ({answer[1]})", remedy or f"check {variables}"
        elif _IS_HTML.search(text):
            # Of a proxy or a portal: what it says about rights is not the store's word, and its text helps no reader.
            status = re.search(r"status code: (\d+)", text)
            code = "STORE_DENIED" if status and status[1] in ("401", "403", "407") else code
            what, _, remedy = self._foreign(status[1] if status else "200", text).partition("; ")
        elif "incorrectly configured region" in text:
            # obstore says so of every redirect that leads nowhere.
            code, what, remedy = "INVALID_ARGUMENT", "the bucket is in another region", "set AWS_REGION to the bucket's"
            if getattr(self._backend, "config", {}).get("endpoint"):
                what = "the endpoint answered with a redirect that leads nowhere"
                remedy = f"check the endpoint and proxies in between; if the store has regions, {remedy}"
        elif isinstance(error, (self._e.PermissionDeniedError, self._e.UnauthenticatedError)):
            code, what = "STORE_DENIED", f"it was denied ({answer[1]})" if answer else first
            remedy = f"check {variables} and what they may do on the bucket"
        elif isinstance(error, self._absent):
            code, remedy = "STORE_DENIED", "check that the bucket exists and that the endpoint is right"
        elif "error sending request" in text:
            what, remedy = "the server cannot be reached", "check the endpoint, the network and the server"
            where = re.search(r"https?://[^/\s]+", text)
            what += f" at {where[0]}" if where else ""
        elif _IS_UNSAFE.search(text):
            code, what = "UNSAFE_STORE", "the server does not implement this request"
            remedy = "use a store that knows conditional writes"
        elif answer:
            what = f"the store answered {answer[1]}"
        elif _IS_NO_STORE.search(text):
            what, _, remedy = self._foreign("200", text).partition("; ")
        return BatchWeaveError(code, f"Cannot {doing} {self.uri}/{key}: {what}; {remedy}.", {"key": key})


class _Absent(Exception):
    """There is no such object; never seen outside."""


def _is_range_past_the_end(error: BatchWeaveError) -> bool:
    text = str(error.__cause__)
    return "416" in text or "InvalidRange" in text or "Range Not Satisfiable" in text or "start offset" in text.lower()
