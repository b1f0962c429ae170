import pytest

from ferrum.assembly.kv_sizing import OVERHEAD_BYTES, KvSize, fit_kv
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import ResourceExhausted
from ferrum.plan.model_plan import KvLayer, ModelPlan

WEIGHTS = 1000
BLOCK = 32


def plan(context_length: int = 4096, num_layers: int = 2) -> ModelPlan:
    layers = tuple(KvLayer(num_heads=2, head_width=64, window=None) for _ in range(num_layers))
    return ModelPlan("tiny", (), (), (), layers, "logits", 10, context_length)


PER_TOKEN = 2 * 2 * 2 * 64 * 2


def fit(
    available: int | None,
    *,
    context: int | None = None,
    sequences: int = 16,
    own: int = 4096,
    utilization: float = 1.0,
) -> KvSize:
    config = EngineConfig(
        max_model_len=context,
        memory_utilization=utilization,
        scheduler=SchedulerConfig(max_running_requests=sequences),
    )
    return fit_kv(plan(own), config, WEIGHTS, available, BLOCK)


def room(num_bytes: int) -> int:
    return num_bytes + WEIGHTS + OVERHEAD_BYTES


def test_bytes_of_a_token_are_k_and_v_of_all_layers() -> None:
    assert fit(None).bytes_per_token == PER_TOKEN


def test_enough_memory_gives_every_sequence_the_models_own_context() -> None:
    size = fit(room(10**12), sequences=4)

    assert size == KvSize(4096, 4 * 4096 // BLOCK, 4 * 4096 * PER_TOKEN, PER_TOKEN, shrunk_from=None)


def test_many_sequences_share_a_pool_of_ordinary_size() -> None:
    assert fit(room(10**12), sequences=64).num_blocks * BLOCK == 65_536


def test_one_long_context_is_always_whole() -> None:
    assert fit(room(10**12), sequences=1, own=131_072).num_blocks * BLOCK == 131_072


def test_pool_shrinks_before_the_context() -> None:
    size = fit(room(4 * 4096 * PER_TOKEN), sequences=16)

    assert size.context_length == 4096
    assert size.num_bytes == 2 * 4096 * PER_TOKEN


def test_context_shrinks_when_memory_is_small_and_says_so() -> None:
    size = fit(room(4096 * PER_TOKEN), sequences=16)

    assert size.context_length == 1024
    assert size.shrunk_from == 4096
    assert size.num_bytes <= 4096 * PER_TOKEN


def test_explicit_context_fits_or_fails() -> None:
    assert fit(room(4096 * PER_TOKEN), context=4096).context_length == 4096
    with pytest.raises(ResourceExhausted, match="--context-length") as refused:
        fit(room(4095 * PER_TOKEN), context=4096)
    assert refused.value.needed == room(4096 * PER_TOKEN)
    assert refused.value.available == room(4095 * PER_TOKEN)


def test_memory_that_holds_no_useful_context_is_an_error() -> None:
    with pytest.raises(ResourceExhausted):
        fit(WEIGHTS)
    with pytest.raises(ResourceExhausted):
        fit(room(100 * PER_TOKEN))


def test_models_with_a_tiny_context_are_not_refused_for_it() -> None:
    assert fit(room(10**9), own=64).context_length == 64


def test_only_the_chosen_share_of_memory_is_used() -> None:
    assert fit(2 * room(4 * 4096 * PER_TOKEN), utilization=0.5) == fit(room(4 * 4096 * PER_TOKEN))


def test_unknown_memory_is_not_fitted_to() -> None:
    assert fit(None).context_length == 4096
    assert fit(None, context=2048).context_length == 2048
