"""Many exports: resumed, reported, on threads and on a Dask cluster."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from torchferry.errors import UsageError
from torchferry.fleet import sweep as sweeping
from torchferry.fleet.job import Job, Row
from torchferry.fleet.sweep import expand, sweep


def fake(job, timeout, memory):
    """A job that is done at once."""
    outcome = "wrong" if job.model.endswith("bad") else "ok"
    return Row(job, outcome, "differs" if outcome == "wrong" else "", 1.0, nodes=3)


@pytest.fixture
def quick(monkeypatch):
    done = []

    def run(job, timeout, memory):
        done.append((job, timeout, memory))
        return fake(job, timeout, memory)

    monkeypatch.setattr(sweeping, "run_job", run)
    return done


JOBS = [Job("a"), Job("bad"), Job("a", "onnx_dynamo")]


def test_rows_come_in_the_order_of_the_jobs(quick, tmp_path):
    told = []
    rows = sweep(JOBS, tmp_path / "r.jsonl", workers=2, timeout=5, memory=7, done=told.append)
    assert [row.job for row in rows] == JOBS
    assert len(told) == 3
    assert {(timeout, memory) for _, timeout, memory in quick} == {(5, 7)}


def test_what_is_done_is_not_done_again(quick, tmp_path):
    file = tmp_path / "r.jsonl"
    sweep(JOBS[:2], file)
    with file.open("a") as stream:
        stream.write('{"job": {"mo')  # cut short
    quick.clear()
    rows = sweep(JOBS, file)
    assert [job for job, *_ in quick] == [JOBS[2]]
    assert [row.outcome for row in rows] == ["ok", "wrong", "ok"]


def test_a_mistake_of_the_user_s_is_tried_again(quick, tmp_path):
    file = tmp_path / "r.jsonl"
    mistaken = Row(JOBS[0], "refused", "UsageError: a has no 'good'")
    refused = Row(JOBS[1], "refused", "CaptureError: no")
    file.write_text("".join(json.dumps(row.to_dict()) + "\n" for row in (mistaken, refused)))
    rows = sweep(JOBS[:2], file)
    assert [row.outcome for row in rows] == ["ok", "refused"]
    assert [job for job, *_ in quick] == [JOBS[0]]
    quick.clear()
    assert [row.outcome for row in sweep(JOBS[:2], file)] == ["ok", "refused"]
    assert quick == []


def test_rows_after_a_cut_line_can_be_read_again(quick, tmp_path):
    file = tmp_path / "r.jsonl"
    sweep(JOBS[:1], file)
    with file.open("a") as stream:
        stream.write('{"job": {"mo')
    sweep(JOBS[:2], file)
    assert [row.outcome for row in sweep(JOBS[:2], file)] == ["ok", "wrong"]


def test_another_file_is_refused(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text("{}\n{}\n")
    with pytest.raises(UsageError, match="line 1, is no row of a sweep"):
        sweep(JOBS, file)


def test_what_a_name_stands_for():
    assert "zoo:llama/text-generation/decode" in " ".join(expand("zoo:llama"))
    assert expand("zoo:mlp") == ["zoo:mlp"]
    assert expand("folder") == ["folder"]
    everything = expand("zoo:*")
    assert len(everything) > 100
    assert set(expand("zoo:bart")) < set(everything)


def test_a_dask_cluster_does_the_work(monkeypatch, tmp_path):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(sweeping, "run_job", fake)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        rows = sweep(JOBS, tmp_path / "r.jsonl", scheduler=cluster.scheduler_address)
    assert [row.outcome for row in rows] == ["ok", "wrong", "ok"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Dask's, of its own processes
def test_workers_of_a_cluster_export_models(tmp_path):
    distributed = pytest.importorskip("distributed")
    file, names = tmp_path / "r.jsonl", ("zoo:mlp", "zoo:gru", "zoo:nothing")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        jobs = [Job(name) for name in names]
        rows = sweep(jobs, file, scheduler=cluster.scheduler_address)
    assert [row.outcome for row in rows] == ["ok", "ok", "refused"]
    assert all(row.nodes and row.sizes >= 3 and row.cpu_seconds for row in rows[:2])
    assert "the zoo has no model" in rows[2].reason
    assert len(file.read_text().splitlines()) == 3


def gone(job, timeout, memory):
    """A job whose worker is gone."""
    raise KeyError(job.model)


def test_a_worker_that_is_gone_is_a_row(monkeypatch, tmp_path):
    monkeypatch.setattr(sweeping, "run_job", gone)

    @contextmanager
    def executor(workers, scheduler):
        with ThreadPoolExecutor(1) as threads:
            yield threads, (KeyError,)

    monkeypatch.setattr(sweeping, "_executor", executor)
    (row,) = sweep(JOBS[:1], tmp_path / "r.jsonl")
    assert (row.job, row.outcome) == (JOBS[0], "crash")
    assert row.reason.startswith("its worker ended")


def test_a_scheduler_that_does_not_answer(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(sweeping, "_PATIENCE", 1)
    with pytest.raises(UsageError, match="no Dask scheduler answers at"):
        sweep(JOBS, tmp_path / "r.jsonl", scheduler="tcp://127.0.0.1:9")
