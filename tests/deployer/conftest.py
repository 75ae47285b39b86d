"""A small model, deployed once for all tests."""

import pytest

from deployer_folders import save_family


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory):
    return save_family("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def bart_folder(tmp_path_factory):
    return save_family("bart", tmp_path_factory.mktemp("bart"))


@pytest.fixture(scope="session")
def deployed_bart(bart_folder, tmp_path_factory):
    """(folder, report) of an encoder-decoder in float32, in eight bits and in four."""
    from torchferry.deployer import deploy

    out = tmp_path_factory.mktemp("deployed") / "bart"
    return out, deploy(bart_folder, out, precisions="fp32,int8,int4")


@pytest.fixture(scope="session")
def deployed(llama_folder, tmp_path_factory):
    """(folder, report) of a llama for every runtime that is installed, in every precision."""
    from torchferry.deployer import deploy

    out = tmp_path_factory.mktemp("deployed") / "llama"
    report = deploy(
        llama_folder, out, runtimes="onnxruntime,genai,optimum", precisions="fp32,fp16,int8,int4"
    )
    return out, report


@pytest.fixture(scope="session")
def deployed_llava(tmp_path_factory):
    """(source folder, folder, report) in float32 and in eight bits."""
    place = tmp_path_factory.mktemp("llava")
    from torchferry.deployer import deploy

    folder = save_family("llava", place / "model")
    report = deploy(folder, place / "out", runtimes="onnxruntime,genai", precisions="fp32,int8")
    return folder, place / "out", report
