"""Volumes of a pod as folders, and the values of downward API fields."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from tools.testbed.rest import Rest


def materialise(
    api: Rest, pod: dict[str, Any], volume: dict[str, Any], folder: Path, facts: dict[str, str]
) -> str:
    """Write the volume's files below `folder` (or name the host's folder); the path to mount."""
    if (claim := volume.get("persistentVolumeClaim")) is not None:
        volume = _behind(api, pod["metadata"]["namespace"], claim["claimName"])
    if "hostPath" in volume:
        path = Path(volume["hostPath"]["path"])
        if volume["hostPath"].get("type") == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        return str(path)
    folder.mkdir(parents=True, exist_ok=True)
    sources = volume["projected"]["sources"] if "projected" in volume else [volume]
    for source in sources:
        for name, data in _files(api, pod, source, facts).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return str(folder)


def _behind(api: Rest, namespace: str, claim: str) -> dict[str, Any]:
    """The host's folder behind a claim; the scheduler has waited until it is bound."""
    name = api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")["spec"]["volumeName"]
    return {"hostPath": api.get(f"/api/v1/persistentvolumes/{name}")["spec"]["hostPath"]}


def _files(api: Rest, pod: dict[str, Any], source: dict[str, Any], facts: dict[str, str]) -> dict[str, bytes]:
    namespace = pod["metadata"]["namespace"]
    if (ref := source.get("configMap")) is not None:
        found = api.get(f"/api/v1/namespaces/{namespace}/configmaps/{ref['name']}").get("data", {})
        return _chosen({key: text.encode() for key, text in found.items()}, ref)
    if (ref := source.get("secret")) is not None:
        name = ref.get("secretName") or ref["name"]
        found = api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}").get("data", {})
        return _chosen({key: base64.b64decode(text) for key, text in found.items()}, ref)
    if (ref := source.get("serviceAccountToken")) is not None:
        return {ref["path"]: _token(api, pod, ref).encode()}
    if (ref := source.get("downwardAPI")) is not None:
        items = [item for item in ref["items"] if "fieldRef" in item]
        return {item["path"]: field(pod, item["fieldRef"]["fieldPath"], facts).encode() for item in items}
    return {}  # emptyDir


def _chosen(files: dict[str, bytes], ref: dict[str, Any]) -> dict[str, bytes]:
    if not ref.get("items"):
        return files
    return {item["path"]: files[item["key"]] for item in ref["items"]}


def _token(api: Rest, pod: dict[str, Any], ref: dict[str, Any]) -> str:
    meta, spec = pod["metadata"], pod["spec"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [ref["audience"]] if ref.get("audience") else [],
            "expirationSeconds": ref.get("expirationSeconds", 3600),
            "boundObjectRef": bound,
        },
    }
    account = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{spec['serviceAccountName']}/token"
    return str(api.post(account, request)["status"]["token"])


def field(pod: dict[str, Any], path: str, facts: dict[str, str]) -> str:
    """The value of a downward API field; `facts` holds what only the kubelet knows (addresses)."""
    meta, spec = pod["metadata"], pod["spec"]
    if found := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
        return str((meta.get(found[1]) or {}).get(found[2], ""))
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec["nodeName"],
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        **facts,
    }
    return known[path]
