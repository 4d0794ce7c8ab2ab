"""An authority of the tests' own, and what it signs: made by openssl, gone with the folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from reprise.controller.errors import StartError


class Authority:
    """Writes `ca.pem`, and key and certificate of each name, into `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.certificate, self._key = folder, folder / "ca.pem", folder / "ca.key"
        self._openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def issue(self, name: str, address: str, password: str | None = None) -> tuple[Path, Path]:
        """Certificate and key (PKCS #8) of somebody at an IP address; the key is encrypted when there is a password."""
        key, request, signed = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        self._openssl(
            *("req", "-new", "-newkey", "rsa:2048", *secret, "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=IP:{address}", "-keyout", str(key), "-out", str(request)),
        )
        self._openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-days", "2", "-copy_extensions", "copy", "-out", str(signed)),
        )
        return signed, key

    def _openssl(self, *arguments: str) -> None:
        try:
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=300)
        except FileNotFoundError:
            raise StartError("openssl is needed for certificates, and is not on the PATH") from None
