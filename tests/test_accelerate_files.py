"""configs/*.yaml as accelerate itself reads them: what its launcher would start, and with which settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin, patch_environment
from accelerate.utils.launch import prepare_multi_gpu_env

from tests.grpo_jobs import SETTINGS
from training import ranks
from training.config import ModelSettings
from training.grpo import Job, arguments

FOLDER = Path(__file__).parent.parent / "configs"


def test_one_gpu_is_one_process() -> None:
    config = load_config_from_file(str(FOLDER / "accelerate_1gpu.yaml"))
    assert (config.num_processes, config.use_cpu, config.mixed_precision) == (1, False, "no")
    assert config.distributed_type.value == "NO"


def test_eight_gpus_shard_the_model_by_block_and_save_it_whole() -> None:
    path = str(FOLDER / "fsdp_8gpu.yaml")
    line = ["--config_file", path, "-m", "coevolve", "train"]
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(line))
    assert (arguments.num_processes, arguments.use_fsdp, arguments.mixed_precision) == (8, True, "no")
    with patch_environment(**prepare_multi_gpu_env(arguments)):
        plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"
    assert not plugin.cpu_ram_efficient_loading
    assert not plugin.activation_checkpointing


def test_the_trainer_computes_in_bfloat16_under_fsdp_and_keeps_what_comes_out_in_float32(tmp_path: Path) -> None:
    """The file says no mixed precision; that is the trainer's own, where all weights are trained."""
    with patch_environment(ACCELERATE_MIXED_PRECISION="no"):
        for weights, wanted in (("full", "bf16"), ("lora", "no")):
            settings = SETTINGS.model_copy(update={"weights": weights, "model": ModelSettings(dtype="bfloat16")})
            job = Job(folder=tmp_path, reference=[], start=None, scratch=tmp_path, version=0, seed=0, settings=settings)
            assert arguments(job).mixed_precision == wanted
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    plugin.set_mixed_precision("bf16")
    ranks.keep_outputs(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)))
    policy = plugin.mixed_precision_policy
    assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (
        torch.bfloat16,
        torch.float32,
        torch.float32,
    )


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_nothing_in_a_file_is_unknown_to_accelerate(path: Path) -> None:
    load_config_from_file(str(path))  # it refuses unknown keys
