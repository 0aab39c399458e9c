"""Files that people name: what is read, and what becomes of what is written over. All of it holds for the
superuser and for others; where modes bind only the latter, each sees what is said of it."""

import contextlib
import errno
import io
import os
import stat
import struct
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from anydml.errors import InvalidInput
from anydml.files import (
    MAX_MODEL,
    Pending,
    check_writable,
    is_alone,
    read_file,
    read_npy,
    read_stream,
    write_atomically,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes, devices and modes are POSIX's")
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
GIB = 1 << 30


@pytest.fixture
def device(tmp_path):
    """Something like /dev/null; the system's own, by a link, for whom devices cannot be made."""
    path = tmp_path / "device"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.write_bytes(b"")
    except OSError:
        path.unlink(missing_ok=True)
        path.symlink_to("/dev/null")
    return path


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def poured(path, content):
    """A writer of a pipe; it ends when its reader does."""

    def pour():
        with contextlib.suppress(BrokenPipeError):
            path.write_bytes(content)

    thread = threading.Thread(target=pour, daemon=True)
    thread.start()
    return thread


def drained(path):
    """What a pipe's reader will have got, once `join` is through."""
    got = []
    thread = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    thread.start()
    return thread, got


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


class TestReading:
    def test_a_file(self, tmp_path):
        (tmp_path / "f").write_bytes(b"12345")
        assert read_file(tmp_path / "f", 5) == b"12345"
        with pytest.raises(OSError, match="expected at most 4 bytes, but got 5") as caught:
            read_file(tmp_path / "f", 4)
        assert caught.value.errno == errno.EFBIG
        with pytest.raises(FileNotFoundError):
            read_file(tmp_path / "none", 4)

    def test_a_file_with_a_hole_larger_than_a_model(self, tmp_path):
        with (tmp_path / "f").open("wb") as file:
            file.truncate(3 * GIB)
        with pytest.raises(OSError, match=r"at most 2,147,483,647 bytes, but got 3,221,225,472"):
            read_file(tmp_path / "f", MAX_MODEL)

    @pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
    def test_a_file_that_does_not_tell_its_size(self):
        assert read_file("/proc/self/status", 1 << 20).startswith(b"Name:")
        with pytest.raises(OSError, match="expected at most 3 bytes, but got more"):
            read_file("/proc/self/status", 3)

    def test_a_pipe(self, pipe):
        thread = poured(pipe, b"x" * 100_000)
        assert read_file(pipe, 100_000) == b"x" * 100_000
        thread.join(60)
        thread = poured(pipe, b"x" * 1_000_000)  # as if it had no end
        with pytest.raises(OSError, match="expected at most 1,000 bytes, but got more"):
            read_file(pipe, 1000)
        thread.join(60)
        assert not thread.is_alive()

    def test_what_has_no_end_or_no_content(self, tmp_path):
        with pytest.raises(IsADirectoryError, match="expected a file, but got a folder"):
            read_file(tmp_path, 100)
        for name in ("/dev/zero", "/dev/null"):
            with pytest.raises(OSError, match="expected a file or a pipe, but got a device"):
                read_file(name, MAX_MODEL)

    def test_streams(self, tmp_path):
        assert read_stream(io.BytesIO(b"abc"), 3, "it") == b"abc"
        with pytest.raises(OSError, match=r"at most 2 bytes, but got more: 'it'"):
            read_stream(io.BytesIO(b"abc"), 2, "it")
        with open("/dev/zero", "rb") as file, pytest.raises(OSError, match="a device, which may never end"):
            read_stream(file, MAX_MODEL, "standard input")
        (tmp_path / "f").write_bytes(b"abc")
        with (tmp_path / "f").open("rb") as file:
            assert read_stream(file, 3, "it") == b"abc"


def npy(header, content=b"", version=1):
    text = header.encode("latin1").ljust(117) + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + content


def header(shape, dtype="'<f4'", order="False"):
    return f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}"


class TestArrays:
    @pytest.mark.parametrize(
        "array",
        [
            np.float32([[1, 2, 3], [4, 5, 6]]),
            np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
            np.array(7, np.int8),
            np.zeros((3, 0, 2)),
            np.array(["a", "bcd"]),
            np.arange(3, dtype=">i4"),
            np.zeros(2, [("a", "<f4"), ("b", "i1")]),
        ],
        ids=lambda a: f"{a.dtype}{a.shape}",
    )
    @pytest.mark.parametrize("through", ["file", "pipe"])
    def test_as_saved(self, tmp_path, pipe, array, through):
        np.save(tmp_path / "a.npy", array)
        path = tmp_path / "a.npy"
        if through == "pipe":
            poured(pipe, path.read_bytes())
            path = pipe
        got = read_npy(path, 1000)
        assert (got.dtype, got.shape, got.tolist()) == (array.dtype, array.shape, array.tolist())
        assert got.flags.f_contiguous == array.flags.f_contiguous
        assert got.flags.writeable

    def test_with_more_behind(self, tmp_path):
        """Of files: of a pipe that stays open nobody knows."""
        path = tmp_path / "a.npy"
        path.write_bytes(npy(header("(10,)"), b"\0" * 41))
        with pytest.raises(InvalidInput, match=r"float32\[10\], 40 bytes, but 41 bytes follow"):
            read_npy(path, 1000)

    @pytest.mark.parametrize("through", ["file", "pipe"])
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                npy(header("(100000000000,)"), b"1234"),
                r"its header tells float32\[100000000000\], 400,000,000,000 bytes, but 4 bytes follow",
            ),
            (npy(header("(10,)"), b"\0" * 39), r"float32\[10\], 40 bytes, but 39 bytes follow"),
            (npy(header("(10,)"), b"\0" * 39, version=2), r"40 bytes, but 39 bytes follow"),
            (npy(header(f"({'9' * 300}, 2)")), "more bytes than any file has"),
            (npy(header("(2, -3)"), b"\0" * 99), r"its header tells float32\[2, -3\]"),
            (npy(header("(9,)", "'|O'"), b"\0" * 99), "Python objects, which are not read"),
            (npy(header("(9,)", "'<U0'"), b"\0" * 99), "its header tells"),
            (npy(header("(9,)", "'|V1000000000'"), b"\0" * 99), "9,000,000,000 bytes, but 99 bytes follow"),
            (npy(header("(1e3,)"), b"\0" * 99), "it is none"),
            (npy("(" * 5000), "it is none"),
            (npy("{}"), "it is none"),
            (npy(header("(1,)"), b"\0" * 4, version=9), "it is none"),
            (npy(header("(" + "1, " * 100 + ")"), b"\0" * 4), "maximum supported dimension"),
            (b"PK\x03\x04 perhaps a .npz", "it is (none|an archive)"),
            (b"", "it is none"),
        ],
    )
    def test_that_lie(self, tmp_path, pipe, content, message, through):
        """What a header tells is compared with what there is, before memory is asked for."""
        path = tmp_path / "a.npy"
        path.write_bytes(content)
        if through == "pipe":
            poured(pipe, content)
            path = pipe
        with pytest.raises(InvalidInput, match=f"expected a NumPy file, but got .*{path.name}: ") as caught:
            read_npy(path, 1 << 62)
        assert caught.match(message)

    def test_more_than_may_be(self, tmp_path):
        """A file with a hole has as many bytes as its header tells, and takes none of the disk."""
        content = npy(header(f"({GIB},)"))
        with (tmp_path / "a.npy").open("wb") as file:
            file.write(content)
            file.truncate(len(content) + 4 * GIB)
        with pytest.raises(
            InvalidInput, match=r"4,294,967,296 bytes; at most 1,073,741,824 bytes can be read"
        ):
            read_npy(tmp_path / "a.npy", GIB)

    def test_a_pipe_that_never_ends(self, pipe):
        """As much is read as its header tells."""
        poured(pipe, npy(header("(3,)")) + np.float32([1, 2, 3]).tobytes() + b"\0" * 10_000_000)
        assert read_npy(pipe, 100).tolist() == [1, 2, 3]

    def test_what_is_no_file(self, tmp_path):
        for path, message in (
            (tmp_path, "expected a file, but got a folder"),
            ("/dev/zero", "but got a device, which may never end"),
            (tmp_path / "none.npy", "no such file or directory"),
            (tmp_path / ("x" * 300), "file name too long"),
        ):
            with pytest.raises(InvalidInput, match=f"expected a NumPy file, but got .*: .*{message}"):
                read_npy(path, GIB)


def write(path, content=b"new"):
    write_atomically(path, lambda file: file.write(content))


def failing(path):
    """Writing that ends half way."""

    def half(file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, half)


class TestWriting:
    @pytest.mark.parametrize("mask", [0o022, 0o077, 0o000])
    def test_a_new_file_has_the_umasks_mode(self, tmp_path, mask):
        before = os.umask(mask)
        try:
            write(tmp_path / "f")
        finally:
            os.umask(before)
        assert mode(tmp_path / "f") == 0o666 & ~mask
        assert names(tmp_path) == ["f"]

    @pytest.mark.parametrize("kept", [0o600, 0o640, 0o755, 0o666])
    def test_a_file_keeps_its_mode(self, tmp_path, kept):
        (tmp_path / "f").write_bytes(b"old, and longer")
        (tmp_path / "f").chmod(kept)
        write(tmp_path / "f")
        assert ((tmp_path / "f").read_bytes(), mode(tmp_path / "f")) == (b"new", kept)

    def test_a_file_keeps_its_owner(self, tmp_path):
        """Which only the superuser can see to; others own what they write."""
        (tmp_path / "f").write_bytes(b"old")
        wanted = (12345, 54321) if IS_ROOT else (os.geteuid(), (tmp_path / "f").stat().st_gid)
        os.chown(tmp_path / "f", *wanted)
        write(tmp_path / "f")
        status = (tmp_path / "f").stat()
        assert (status.st_uid, status.st_gid) == wanted

    def test_nothing_is_lost_half_way(self, tmp_path, pipe, device):
        (tmp_path / "f").write_bytes(b"old")
        (tmp_path / "link").symlink_to("f")
        (tmp_path / "dangling").symlink_to("nothing")
        before = names(tmp_path)
        for name in ("f", "link", "dangling", "new"):
            failing(tmp_path / name)
        failing(pipe)  # whose reader is never waited for
        failing(device)
        assert (tmp_path / "f").read_bytes() == b"old"
        assert names(tmp_path) == before

    def test_an_interrupt_leaves_nothing(self, tmp_path):
        def interrupted(file):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "f", interrupted)
        assert names(tmp_path) == []

    def test_what_is_pending_and_never_placed(self, tmp_path):
        (tmp_path / "f").write_bytes(b"old")
        with Pending(tmp_path / "f", lambda file: file.write(b"new")):
            assert len(names(tmp_path)) == 2
        assert names(tmp_path) == ["f"]
        assert (tmp_path / "f").read_bytes() == b"old"

    @pytest.mark.parametrize("absolute", [True, False])
    def test_a_link_stays(self, tmp_path, absolute):
        """Its target keeps its mode; a chain of links is followed, from the folders where they lie."""
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "f").write_bytes(b"old")
        (tmp_path / "b" / "f").chmod(0o640)
        (tmp_path / "b" / "second").symlink_to("f")
        (tmp_path / "a" / "first").symlink_to(tmp_path / "b" / "second" if absolute else "../b/second")
        write(tmp_path / "a" / "first")
        assert (tmp_path / "a" / "first").is_symlink()
        assert (tmp_path / "b" / "second").is_symlink()
        assert (tmp_path / "b" / "f").read_bytes() == b"new"
        assert mode(tmp_path / "b" / "f") == 0o640

    def test_a_link_to_nothing_makes_its_target(self, tmp_path):
        (tmp_path / "link").symlink_to("f")
        write(tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "f").read_bytes() == b"new"
        (tmp_path / "far").symlink_to("no/where")
        with pytest.raises(FileNotFoundError, match=r"there is no such folder to write to: '.*/no'"):
            write(tmp_path / "far")

    def test_links_in_a_circle(self, tmp_path):
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        with pytest.raises(OSError, match="symbolic links") as caught:
            write(tmp_path / "a")
        assert caught.value.filename == str(tmp_path / "a")

    def test_other_hard_links_keep_the_old_content(self, tmp_path):
        (tmp_path / "f").write_bytes(b"old")
        os.link(tmp_path / "f", tmp_path / "g")
        write(tmp_path / "f")
        assert ((tmp_path / "f").read_bytes(), (tmp_path / "g").read_bytes()) == (b"new", b"old")

    def test_a_file_that_may_only_be_read(self, tmp_path):
        """It is refused, as by cp; modes do not bind the superuser."""
        (tmp_path / "f").write_bytes(b"old")
        (tmp_path / "f").chmod(0o444)
        if IS_ROOT and os.access(tmp_path / "f", os.W_OK):
            write(tmp_path / "f")
            assert (tmp_path / "f").read_bytes() == b"new"
        else:
            with pytest.raises(PermissionError, match="it may not be written: permission denied"):
                write(tmp_path / "f")
            assert (tmp_path / "f").read_bytes() == b"old"
        assert mode(tmp_path / "f") == 0o444
        assert names(tmp_path) == ["f"]

    def test_a_folder_in_which_nothing_may_be_made(self, tmp_path):
        """A file in it cannot be replaced at once, so it is not touched."""
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "f").write_bytes(b"old")
        folder.chmod(0o555)
        if os.access(folder, os.W_OK):
            write(folder / "f")
            assert (folder / "f").read_bytes() == b"new"
        else:
            with pytest.raises(PermissionError) as caught:
                write(folder / "f")
            assert caught.value.filename == str(folder / "f")
            assert (folder / "f").read_bytes() == b"old"
        folder.chmod(0o755)
        assert names(folder) == ["f"]

    def test_a_pipe_is_written_to(self, pipe):
        thread, got = drained(pipe)
        write_atomically(pipe, lambda file: np.save(file, np.arange(100_000)))
        thread.join(60)
        assert np.load(io.BytesIO(got[0])).tolist() == list(range(100_000))
        assert stat.S_ISFIFO(os.lstat(pipe).st_mode)
        assert is_alone(pipe)

    def test_a_pipe_whose_reader_ends(self, pipe):
        reader = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDONLY)), daemon=True)
        reader.start()
        with pytest.raises(OSError, match="its reader ended before all was written"):
            write(pipe, b"x" * 10_000_000)
        reader.join(60)

    def test_a_device_is_written_to(self, device, tmp_path):
        (tmp_path / "link").symlink_to(device.name)
        before = os.stat(device)
        for path in (device, tmp_path / "link"):
            assert is_alone(path)
            write(path)
            assert os.stat(path).st_rdev == before.st_rdev
            assert stat.S_ISCHR(os.stat(path).st_mode)
        assert names(tmp_path) == ["device", "link"]

    @pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc here")
    def test_an_open_file_is_written_to(self, tmp_path):
        """At its own place: what the shell's >> has opened grows."""
        path = tmp_path / "log"
        path.write_bytes(b"old, ")
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            write(Path(f"/dev/fd/{handle}"))
            write(Path(f"/proc/self/fd/{handle}"))
        finally:
            os.close(handle)
        assert path.read_bytes() == b"old, newnew"

    def test_a_folder(self, tmp_path):
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to("folder")
        for path in (tmp_path / "folder", tmp_path / "link", tmp_path, Path("/"), Path("..")):
            for attempt in (write, check_writable):
                with pytest.raises(IsADirectoryError, match="expected a file to write, but got a folder"):
                    attempt(path)
            assert not is_alone(path)

    def test_names_that_cannot_be(self, tmp_path):
        (tmp_path / "f").write_bytes(b"old")
        for path, kind in (
            (tmp_path / "no" / "f", FileNotFoundError),
            (tmp_path / "f" / "g", OSError),
            (tmp_path / ("x" * 300), OSError),
        ):
            with pytest.raises(kind):
                write(path)
        write(tmp_path / ("ä" * 127))  # 254 bytes: there is room for a temporary name, too
        assert names(tmp_path) == ["f", "ä" * 127]
