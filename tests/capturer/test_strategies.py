from torch.export import Dim

from torchferry.capturer.strategies import DIAGNOSIS, FIRST, STRATEGIES


def test_each_strategy_has_a_text_of_its_own():
    assert len({one.text for one in (*STRATEGIES, DIAGNOSIS)}) == len(STRATEGIES) + 1
    assert STRATEGIES[0] is FIRST


def test_only_the_diagnosis_lets_sizes_be_fixed():
    assert [one.hint for one in STRATEGIES] == [Dim.DYNAMIC] * len(STRATEGIES)
    assert DIAGNOSIS.hint is Dim.AUTO
