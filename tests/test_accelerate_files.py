"""configs/*.yaml as accelerate itself reads them: what its launcher would start, and with which settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin, patch_environment
from accelerate.utils.launch import prepare_multi_gpu_env

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


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_nothing_in_a_file_is_unknown_to_accelerate(path: Path) -> None:
    load_config_from_file(str(path))  # it refuses unknown keys
