"""Pinned downloads: SHA-256, cache and errors."""

import hashlib
from pathlib import Path

import pooch
import pytest
from requests.exceptions import ConnectionError as NoConnection

from evenhand.evaluation.datasets import downloads
from evenhand.evaluation.errors import InputError

CONTENT = b"pinned content"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def serve(monkeypatch, content):
    """Make each download write `content`, or raise it, and return the list of requested URLs."""
    requested = []

    def download(self, url, output_file, pooch):
        requested.append(url)
        if isinstance(content, Exception):
            raise content
        Path(output_file).write_bytes(content)

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
    return requested


def test_a_file_is_downloaded_once(cache, monkeypatch):
    requested = serve(monkeypatch, CONTENT)
    for _ in range(2):
        path = downloads.fetch_pinned_file("https://host/file", SHA256, "folder/file", "do it by hand.")
        assert path == cache / "evenhand" / "folder" / "file"
        assert path.read_bytes() == CONTENT
    assert requested == ["https://host/file"]
    assert [item.name for item in path.parent.iterdir()] == ["file"]  # no temporary file


def test_a_damaged_copy_is_downloaded_again(cache, monkeypatch):
    requested = serve(monkeypatch, CONTENT)
    path = downloads.fetch_pinned_file("https://host/file", SHA256, "file", "do it by hand.")
    path.write_bytes(b"pinned con")
    assert downloads.fetch_pinned_file("https://host/file", SHA256, "file", "do it by hand.").read_bytes() == CONTENT
    assert len(requested) == 2


@pytest.mark.parametrize(
    ("content", "message"), [(b"something else", "pinned .*but got"), (NoConnection("no route"), "no route")]
)
def test_a_failed_download_leaves_no_file(cache, monkeypatch, content, message):
    serve(monkeypatch, content)
    with pytest.raises(InputError, match=f"https://host/file .*{message}.*do it by hand"):
        downloads.fetch_pinned_file("https://host/file", SHA256, "file", "do it by hand.")
    assert not (cache / "evenhand" / "file").exists()


def test_an_unwritable_cache_raises_with_its_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    serve(monkeypatch, CONTENT)
    with pytest.raises(InputError, match="XDG_CACHE_HOME"):
        downloads.fetch_pinned_file("https://host/file", SHA256, "file", "do it by hand.")
