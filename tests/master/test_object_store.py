"""A store in an object store: moto's S3, reached as Arrow reaches the real one."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
from datetime import UTC, datetime, timedelta

import boto3
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from moto.server import ThreadedMotoServer

import semistream as ss
from semistream.errors import (
    ConcurrentChangeError,
    CorruptPageError,
    InvalidInputError,
    NotAStoreError,
    StoreError,
    StoreExistsError,
)
from semistream.master import LAYOUTS, operation, storage
from semistream.master.vacuum import vacuum

pytestmark = pytest.mark.xdist_group("object-store")  # one server for all of them

BUCKET = "masters"


def table(*ids: int, mark: str = "old") -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "v": pa.array([mark + "." * 300] * len(ids), pa.string())}
    )


def ids(master: ss.Master) -> list[int]:
    return [i for batch in master.scan() for i in batch.column("id").to_pylist()]


def serve(port: multiprocessing.connection.Connection) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port.send("{}:{}".format(*server.get_host_and_port()))
    port.recv()  # until the tests close their end


@pytest.fixture(scope="module")
def endpoint():
    """A server in a process of its own: Arrow finishes dropped uploads with the interpreter locked, here as in life."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        assert ours.poll(120), "the server did not start"
        yield ours.recv()
    finally:
        process.terminate()
        process.join()
        ours.close()
        theirs.close()


@pytest.fixture(scope="module")
def client(endpoint):
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{endpoint}",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - what moto takes
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    yield client
    client.close()


@pytest.fixture(scope="module")
def s3(endpoint, client):
    return pafs.S3FileSystem(
        endpoint_override=endpoint,
        scheme="http",
        access_key="test",
        secret_key="test",  # noqa: S106
        region="us-east-1",
    )


@pytest.fixture
def path(request) -> str:
    """A prefix of its own for every test."""
    return f"{BUCKET}/{request.node.name.replace('/', '-').replace('[', '-').replace(']', '')}"


@pytest.fixture
def objects(client, path):
    """The objects of the test's prefix with their contents; the empty ones that stand for directories left out."""

    def listed() -> dict[str, bytes]:
        prefix = path.partition("/")[2] + "/"
        found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return {
            entry["Key"].removeprefix(prefix): client.get_object(Bucket=BUCKET, Key=entry["Key"])[
                "Body"
            ].read()
            for entry in found
            if not entry["Key"].endswith("/")
        }

    return listed


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_whole_life_of_a_store(s3, path, objects, layout):
    first = ss.build_master(
        table(*range(60, 0, -1)), path, key="id", layout=layout, page_bytes=4096, filesystem=s3
    )
    order = (lambda keys: sorted(keys)) if layout == "key" else list
    assert ids(first) == order(range(60, 0, -1))
    assert first.pages > 3
    assert ids(ss.open_master(path, filesystem=s3)) == ids(first)

    second = first.append(table(99, 70))
    assert ids(second) == order([*range(60, 0, -1), 99, 70])
    third = second.upsert(table(70, 100, 5, mark="new"))
    assert ids(third) == order([*range(60, 0, -1), 99, 70, 100])
    fourth = first.delete(pa.table({"id": range(50)}))
    assert ids(fourth) == order([*range(60, 49, -1), 99, 70, 100])

    assert first.refresh().version == 4
    assert fourth.versions() == [1, 2, 3, 4]
    assert ids(fourth.at_version(2)) == ids(second)
    found = fourth.verify()
    assert (found.rows, found.damaged) == (14, ())
    index_pages = fourth.manifest.key_index.pages if layout == "frequency" else 0
    assert found.pages == fourth.pages + index_pages

    now = datetime.now(UTC)
    assert vacuum(fourth.storage, keep_for=timedelta(hours=1), now=now).files == 0
    assert vacuum(fourth.storage, keep_for=timedelta(hours=1), now=now + timedelta(hours=2)).versions == (
        1,
        2,
        3,
    )
    names = {"semistream-master.json", "versions/00000004.json"} | fourth.manifest.files()
    assert set(objects()) == names
    assert ids(ss.open_master(path, filesystem=s3)) == ids(fourth)


def test_the_files_are_plain_arrow_files(s3, path):
    master = ss.build_master(table(3, 1, 2), path, key="id", filesystem=s3)
    (name,) = master.manifest.data.files
    with s3.open_input_file(f"{path}/{name}") as source, pa.ipc.open_file(source) as file:
        assert file.read_all().column("id").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("form", ["endpoint and scheme", "endpoint as a URI"])
def test_a_uri_says_everything(client, endpoint, path, objects, form):
    query = (
        f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
        if form == "endpoint and scheme"
        else f"endpoint_override=http%3A%2F%2F{endpoint.replace(':', '%3A')}"
    )
    uri = f"s3://test:test@{path.replace(' ', '%20')}?{query}"
    master = ss.build_master(table(2, 1), uri, key="id")
    assert master.path == uri.replace("test:test@", "")  # credentials are not shown
    assert ids(ss.open_master(uri).append(table(3))) == [1, 2, 3]
    assert "versions/00000002.json" in objects()


def test_what_is_not_a_store(s3, path, client, objects):
    with pytest.raises(NotAStoreError, match=rf"opening {path} as a master store: found nothing\."):
        ss.open_master(path, filesystem=s3)
    client.put_object(Bucket=BUCKET, Key=f"{path.partition('/')[2]}/deep/mine", Body=b"mine")
    with pytest.raises(NotAStoreError, match=r"found other files\."):
        ss.open_master(path, filesystem=s3)
    with pytest.raises(StoreExistsError, match=r"no store\. .*nothing was changed"):
        ss.build_master(table(1), path, key="id", filesystem=s3)
    assert objects() == {"deep/mine": b"mine"}
    with pytest.raises(StoreError, match=r"writing no-such-bucket/m/.*NO_SUCH_BUCKET.*Check the path"):
        ss.build_master(table(1), "no-such-bucket/m", key="id", filesystem=s3)


def test_a_store_is_not_overwritten_by_mistake(s3, path, objects):
    ss.build_master(table(1), path, key="id", filesystem=s3)
    before = objects()
    with pytest.raises(StoreExistsError, match="found a store with version 1"):
        ss.build_master(table(2), path, key="id", filesystem=s3)
    assert objects() == before
    new = ss.build_master(table(2), path, key="id", filesystem=s3, if_exists="replace")
    assert (new.version, ids(new)) == (2, [2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_build_that_fails_leaves_nothing_and_may_be_repeated(s3, path, objects, layout):
    def rows():
        yield table(*range(40)).to_batches()[0]
        raise KeyboardInterrupt

    source = pa.RecordBatchReader.from_batches(table().schema, rows())
    with pytest.raises(KeyboardInterrupt):
        ss.build_master(source, path, key="id", layout=layout, page_bytes=4096, filesystem=s3)
    gc.collect()
    assert objects() == {}
    assert ids(ss.build_master(table(1), path, key="id", layout=layout, filesystem=s3)) == [1]


@pytest.mark.parametrize("what", [".json", ".arrow", "table-"])
@pytest.mark.parametrize("moment", ["write", "close"])
def test_a_change_that_is_interrupted_leaves_nothing(s3, path, objects, monkeypatch, what, moment):
    """Not even later: an upload that is only dropped completes itself when it is collected."""
    master = ss.build_master(table(1), path, key="id", filesystem=s3)
    before = objects()
    real = getattr(storage._ObjectUpload, moment)

    def interrupted(self, *args):
        if what in self.path:
            raise KeyboardInterrupt
        real(self, *args)

    monkeypatch.setattr(storage._ObjectUpload, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        master.append(table(2))
    monkeypatch.undo()
    gc.collect()
    assert objects() == before
    assert ids(master.append(table(3))) == [1, 3]


def test_of_two_writers_one_is_too_late(s3, path, objects, monkeypatch):
    master = ss.build_master(table(1), path, key="id", filesystem=s3)
    commit = operation.Operation.commit
    won = {}

    def too_late(self, manifest):
        if not won:
            won["now"] = True
            master.append(table(7))
            won["objects"] = {n: data for n, data in objects().items() if not n.startswith(self.folder)}
        commit(self, manifest)

    monkeypatch.setattr(operation.Operation, "commit", too_late)
    with pytest.raises(ConcurrentChangeError, match=r"refresh\(\) and try again"):
        master.append(table(9))
    assert objects() == won["objects"]
    assert ids(master.refresh()) == [1, 7]


def test_what_killed_operations_leave_goes_once_it_is_old(s3, path, client, objects):
    master = ss.build_master(table(1), path, key="id", filesystem=s3)
    before = objects()
    prefix = path.partition("/")[2]
    names = [f"pages/{'ab' * 16}/{'cd' * 16}.arrow", f"pages/{'ab' * 16}/table-{'ef' * 16}.arrow"]
    for name in names:
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=b"left")
    assert master.vacuum(keep_for=timedelta(hours=1)).files == 0
    assert set(objects()) == {*before, *names}
    later = datetime.now(UTC) + timedelta(hours=2)
    assert vacuum(master.storage, keep_for=timedelta(hours=1), now=later).bytes == 2 * len(b"left")
    assert objects() == before


def test_a_build_that_was_killed_may_be_repeated(s3, path, client, objects):
    """The claim and some pages are there, and no version."""
    master = ss.build_master(table(1), path, key="id", filesystem=s3)
    client.delete_object(Bucket=BUCKET, Key=f"{path.partition('/')[2]}/versions/00000001.json")
    with pytest.raises(NotAStoreError, match="found a build that was not finished"):
        ss.open_master(path, filesystem=s3)
    again = ss.build_master(table(2), path, key="id", filesystem=s3)
    assert (again.version, ids(again)) == (1, [2])
    later = datetime.now(UTC) + timedelta(hours=2)
    vacuum(again.storage, keep_for=timedelta(hours=1), now=later)
    assert not objects().keys() & master.manifest.files()


def test_damage_is_noticed(s3, path, client):
    master = ss.build_master(table(*range(50)), path, key="id", page_bytes=4096, filesystem=s3)
    (name,) = master.manifest.data.files
    key = f"{path.partition('/')[2]}/{name}"
    raw = bytearray(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    start = int(master.data.load_table().offset[2])
    raw[start + 1000] ^= 4
    client.put_object(Bucket=BUCKET, Key=key, Body=bytes(raw))
    with pytest.raises(CorruptPageError, match=f"{name} at offset {start}"):
        ids(master)
    found = master.verify()
    assert len(found.damaged) == 1
    assert found.rows == 50 - int(master.data.load_table().rows[2])
    client.delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(StoreError, match=name):
        ids(master)
    client.delete_object(Bucket=BUCKET, Key=f"{path.partition('/')[2]}/{master.manifest.data.table}")
    with pytest.raises(StoreError, match=rf"reading {master.manifest.data.table} of {path}"):
        ids(ss.open_master(path, filesystem=s3))


def test_a_master_travels_with_its_file_system(s3, path):
    master = ss.build_master(table(2, 1), path, key="id", filesystem=s3)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(ss.Master.verify, (master,)).rows == 2


def test_credentials_of_a_uri_are_not_shown():
    opened = storage.open_storage(
        "s3://AKIAKEY:topsecret@bucket/path?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    )
    assert opened.location == "s3://bucket/path?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    with pytest.raises(InvalidInputError) as raised:
        storage.open_storage("s4://AKIAKEY:topsecret@bucket/path")
    assert "topsecret" not in str(raised.value)
