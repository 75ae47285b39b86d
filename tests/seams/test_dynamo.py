import subprocess
import sys

from torchferry.seams import dynamo

HIDE = """
from torchferry.seams import table
real = table.find.__wrapped__
def find(name):
    if name.endswith("_override_composite_implicit_decomp"):
        raise LookupError(name)
    return real(name)
table.find = find
from torchferry.errors import UsageError
try:
    import torchferry.seams.dynamo
except UsageError as error:
    print(error)
"""


def test_what_the_backend_needs_is_there():
    assert callable(dynamo.aot_autograd)
    assert issubclass(dynamo.TorchDynamoException, Exception)
    assert dynamo.OutputType.non_alias is not None
    with dynamo.keep_composites({}):
        assert not dynamo.is_wrapper_subclass(1)


def test_importing_it_says_what_is_gone():
    done = subprocess.run([sys.executable, "-c", HIDE], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert "_override_composite_implicit_decomp, which torchferry needs for the torch.compile" in (
        done.stdout
    )
