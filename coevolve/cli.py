"""The command line: thin sub-commands; everything heavy is imported when it is called.

Exit codes: 0 done, 1 something failed (one line says what), 2 bad input (one line says field, value and fix).
Results go to stdout (`--json` for machines), progress and messages to stderr.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import click

from store.errors import CoevolveError, UsageError

Command = Callable[..., Any]


class Group(click.Group):
    """Shows its commands in the order in which they stand here, that of a first session."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if ctx.parent is None:
                raise
            known = ", ".join(self.commands)  # few enough to name
            raise click.UsageError(f"{error.format_message()} The commands are {known}.", ctx) from None


Group.group_class = Group


class Cli(Group):
    """Reports our errors as one line with the right exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CoevolveError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(2 if isinstance(error, UsageError) else 1)
        except BrokenPipeError:
            ctx.exit(1)
        except OSError as error:  # a full disk, a folder where a file should be: the machine's fault, in its words
            path = error.filename2 or error.filename
            where = f"{path}: " if path else ""
            click.echo(f"error: {where}{error.strerror or error}", err=True)
            ctx.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for arg in args:
            if arg != arg.encode(errors="replace").decode():
                raise click.UsageError(f"the argument {arg!a} is not valid text (UTF-8)", ctx)
        return super().parse_args(ctx, args)


def workspace_options(command: Command) -> Command:
    """--workspace and --json, on every command that works in a workspace."""
    command = click.option("--workspace", metavar="DIR", help="Workspace folder. [default: the nearest upward]")(
        command
    )
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")(command)


def run_options(run: str = "Run to work on. [default: the newest]") -> Callable[[Command], Command]:
    """Options of the commands that work on a run; `run` is the help of --run."""

    def add(command: Command) -> Command:
        command = workspace_options(command)
        command = click.option("--run", "run_id", metavar="ID", help=run, shell_complete=run_names)(command)
        return click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a setting.")(
            command
        )

    return add


def env_option(command: Command) -> Command:
    return click.option(
        "--env", metavar="NAME", help="Environment, with settings that suit it. [default: env of config.toml]"
    )(command)


def setting(flag: str, key: str, **options: Any) -> Callable[[Command], Command]:
    """A flag that stands for `--set KEY=VALUE`."""
    name = key.replace(".", "_")

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> Any:
            value = given.pop(name)
            if value is not None and value is not False:
                given["overrides"] = (*given["overrides"], f"{key}={json.dumps(value)}")
            return command(**given)

        return click.option(flag, name, **options)(run)

    return add


explorer_option = setting(
    "--explorer",
    "explorer",
    metavar="SPEC",
    help="Who explores and validates: procedural, litellm:NAME, or policy. [default: explorer]",
)
polish_option = setting(
    "--polish",
    "validate.polish",
    is_flag=True,
    help="Let the explorer's model put tasks in better words, where judges prefer them.",
)
studio_option = click.option(
    "--studio",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Run the graphs on the server of `coevolve studio`. [default URL: the workspace's own]",
)
protected_option = click.option(
    "--include-protected", is_flag=True, help="Put in texts that a licence forbids to pass on; see docs/appworld.md."
)


def run_names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Runs of the workspace, for shells that complete words."""
    from coevolve.workspace import Workspace

    try:
        return [name for name in Workspace.find(ctx.params.get("workspace")).run_ids() if name.startswith(begun)]
    except CoevolveError:
        return []


def say_versions(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from coevolve.versions import versions

    found = versions()
    click.echo(f"coevolve, version {found.pop('coevolve')}")
    for name, number in found.items():
        click.echo(f"  {name} {number}")
    ctx.exit()


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=say_versions,
    help="Tell the versions of this and of what it runs on.",
)
def main() -> None:
    """Train tool-using LLM agents and evolve their training tasks together."""


@main.command()
@click.argument("directory", metavar="DIR")
def init(directory: str) -> None:
    """Make a workspace DIR with a commented config.toml."""
    from coevolve.config import init_workspace

    path = init_workspace(directory)
    click.echo(f"{path} is ready; next: cd {directory} && coevolve evolve --rounds 3")


@main.command()
@run_options("Run to go on with; needs --resume. [default: a new run; with --resume the newest]")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of the run in all. [default: the run's own, else 3]")
@click.option("--resume", is_flag=True, help="Go on with the newest run (or --run) instead of starting one.")
@env_option
@click.option("--overlap", is_flag=True, help="Explore the signals of an iteration while the next one trains.")
@explorer_option
@polish_option
@setting(
    "--on-drop",
    "guard.on_drop",
    type=click.Choice(["rollback", "pause", "continue"]),
    help="When a held-out suite falls. [default: guard.on_drop]",
)
def evolve(**options: Any) -> None:
    """Run the whole loop, round after round.

    A round is train, eval, signals, explore, validate, snapshot; each step but the snapshot is a command too.
    """
    from coevolve.commands import evolve_command

    emit(options, *evolve_command(**options))


@main.command()
@run_options("Run to go on with. [default: a new run]")
@click.option("--resume", is_flag=True, help="Go on with a seeding that was interrupted.")
@env_option
@explorer_option
@polish_option
def seed(resume: bool, **options: Any) -> None:
    """Start a run and make D_0, its first tasks.

    D_0 is seed tasks of the environment and validated tasks of unguided exploration.
    """
    from coevolve.commands import seed_command

    emit(options, *seed_command(resume=resume, **options))


@main.command()
@run_options()
@click.option("--snapshot", default="latest", show_default=True, metavar="latest|ID", help="D_t to train on.")
@click.option("--resume", is_flag=True, help="Keep the finished part of an interrupted training.")
@click.option("--follow", is_flag=True, help="Stay up and train on each new snapshot as it is frozen.")
@click.option("--rounds", type=click.IntRange(min=1), help="With --follow: end after this many iterations in all.")
@click.option(
    "--from", "start", type=click.Choice(["base", "last"]), help="Version to train further. [default: train.start]"
)
@click.option("--sft", metavar="FILE", help="Fine-tune the base model on conversations (alpaca, sharegpt) instead.")
@click.option("--out", metavar="DIR", help="With --sft: the model folder to write.")
def train(sft: str | None, out: str | None, **options: Any) -> None:
    """Sample rollouts of every task and update the policy."""
    if sft or out:
        from coevolve.instruct import instruct_command

        return emit(options, *instruct_command(sft=sft, out=out, **options))
    from coevolve.commands import train_command

    emit(options, *train_command(**options))


@main.command()
@run_options()
def signals(**options: Any) -> None:
    """List the weaknesses that the newest rollouts show.

    Extracts them first if need be.
    """
    from coevolve.commands import signals_command

    emit(options, *signals_command(**options))


@main.command()
@run_options()
@click.option(
    "--signals", "which", default="latest", show_default=True, metavar="latest|ID|KIND", help="Signals to explore."
)
@click.option("--focus", metavar="STRUCTURE", help="Explore this structure of D_t instead; the next call goes back.")
@explorer_option
@studio_option
def explore(which: str, **options: Any) -> None:
    """Send the explorer back in, conditioned on signals."""
    from coevolve.commands import explore_command

    emit(options, *explore_command(which=which, **options))


@main.command()
@run_options()
@explorer_option
@polish_option
@studio_option
def validate(**options: Any) -> None:
    """Decide candidates by execution, then freeze D_{t+1}."""
    from coevolve.commands import validate_command

    emit(options, *validate_command(**options))


@main.command()
@run_options("Run whose candidates are reviewed. [default: the newest]")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Write a sheet of N candidates to be rated.")
@click.option("--out", metavar="FILE", help="With --sample: the sheet to write, CSV.")
@click.option("--read", "sheet", metavar="FILE", help="Read a sheet that was filled in.")
@click.option("--rater", metavar="NAME", help="With --read: who filled it in.")
def review(**options: Any) -> None:
    """Compare the judges with each other and with people.

    Without options it tells how the judges voted, where they disagree, and what a verdict costs.
    """
    from coevolve.review import review_command

    emit(options, *review_command(**options))


@main.command()
@run_options()
@click.argument("file", metavar="FILE")
def inject(file: str, **options: Any) -> None:
    """Propose the tasks of FILE, one JSON object a line.

    They are validated like those of the explorer: next, `coevolve validate`.
    """
    from coevolve.commands import inject_command

    emit(options, *inject_command(file=file, **options))


@main.command("eval")
@run_options("Run whose policy is played. [default: the newest]")
@click.option(
    "--suite", "--split", "suites", multiple=True, metavar="NAME", help="Held-out suite. [default: eval.suites]"
)
@click.option("--policy-version", type=int, help="Policy version. [default: the newest]")
@setting(
    "--limit",
    "eval.limit",
    type=click.IntRange(min=0),
    help="Tasks per suite, spread evenly; 0 = all. [default: eval.limit]",
)
@setting(
    "--samples", "eval.k", type=click.IntRange(min=1), help="Rollouts per task, avg@k; 1 = greedy. [default: eval.k]"
)
@env_option
@click.option("--policy", metavar="SPEC", help="A model as it is, without a run. [default: with --env, config.toml's]")
@click.option("--rescore", is_flag=True, help="Play nothing: grade the stored rollouts anew.")
def evaluate(**options: Any) -> None:
    """Play held-out suites with a policy version, or any model.

    With --env or --policy no run is needed. What was played is kept, so the
    same command goes on after a break.
    """
    from coevolve.commands import eval_command

    emit(options, *eval_command(**options))


@main.command()
@run_options()
@click.option("--policy-version", type=int, help="Policy version. [default: the newest]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port, 0 = a free one. [default: train.engine.port]")
def serve(**options: Any) -> None:
    """Serve a policy version with vLLM.

    Prints its URL and model name; SIGTERM or ctrl-C ends it.
    """
    from coevolve.serving import serve_command

    serve_command(**options, announce=lambda data, shown: emit(options, data, shown))


@main.command()
@workspace_options
@click.argument("source", metavar="IN")
@click.option("--out", required=True, metavar="OUT", help="File to write, .json, .jsonl or .parquet as IN.")
@click.option("--format", "form", required=True, type=click.Choice(["alpaca", "sharegpt"]), help="Form of the records.")
@click.option("--model", required=True, metavar="NAME", help="Model of all roles, as litellm names it.")
@click.option("--judge-model", metavar="NAME", help="Model of the judge. [default: --model]")
@click.option("--provenance", is_flag=True, help="Add columns that say what became of each sample.")
@click.option("--resume", is_flag=True, help="Go on with what was interrupted, and try again what failed.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a setting.")
@studio_option
def refine(**options: Any) -> None:
    """Improve an instruction data set by debate.

    Two debaters, an advisor, an editor and a judge work on every response of IN; what they make better is in OUT.
    """
    from coevolve.refine import refine_command

    emit(options, *refine_command(**options))


@main.command()
@workspace_options
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--html", metavar="FILE", help="Write one HTML page with charts instead.")
def refined(**options: Any) -> None:
    """Tell what `refine` did to a data set.

    Of the newest JOB: outcomes, rounds, lengths, the judge's bias, the advice given, cost.
    """
    from coevolve.refined import refined_command

    emit(options, *refined_command(**options))


@main.command()
@workspace_options
@click.option("--run", "run_id", metavar="ID", help="Run to show. [default: the newest]", shell_complete=run_names)
@click.option("--long", is_flag=True, help="One wide table, with the reasons of rejections and every number.")
def status(**options: Any) -> None:
    """Tell where a run stands: scores, signals, what waits."""
    from coevolve.questions import status_command

    emit(options, *status_command(**options))


@main.command()
@workspace_options
@click.option("--run", "run_id", metavar="ID", help="Run whose history is told. [default: the newest]")
@click.argument("task")
def why(task: str, **options: Any) -> None:
    """Tell why TASK is in the training set.

    Signal, evidence, exploration, verdict, snapshots, later scores.
    """
    from coevolve.questions import why_command

    emit(options, *why_command(task=task, **options))


@main.command()
@workspace_options
@click.argument("run", metavar="[RUN]", required=False, shell_complete=run_names)
@click.option("--out", metavar="FILE", help="HTML file to write. [default: report.html in the run's folder]")
@click.option("--live", is_flag=True, help="Serve it on this machine instead, anew whenever there is news.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --live: port, 0 = a free one.")
@protected_option
def report(**options: Any) -> None:
    """Tell a run's story on one HTML page.

    Scores, signals, funnel, cost, and the tasks worth a look with their rollouts. It needs no network.
    """
    from coevolve.report import report_command

    emit(options, *report_command(**options))


@main.command()
@workspace_options
@click.argument("query", required=False)
@click.option("--file", "path", metavar="FILE", help="Read the question from FILE instead; - is standard input.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV on stdout.")
def sql(as_csv: bool, **options: Any) -> None:
    """Ask the store in SQL, also while a run is writing."""
    from coevolve.questions import sql_command

    table = sql_command(**options)
    if not table.rows:
        click.echo("0 rows", err=True)
    emit({**options, "as_csv": as_csv}, table, table)


@main.command()
@workspace_options
@click.option("--run", "run_id", metavar="ID", help="Run of the task. [default: the newest]", shell_complete=run_names)
@click.option("--html", metavar="FILE", help="Write one HTML page instead.")
@click.option("--otlp", metavar="URL", help="Send it as OpenTelemetry traces instead; needs the extra `otel`.")
@protected_option
@click.argument("ref", metavar="RUN|TASK", shell_complete=run_names)
def trace(**options: Any) -> None:
    """Tell what a run's graphs did, or what happened to a task.

    Nodes with times, tokens and cost, messages, tool calls, verdict; of a task its rollouts too.
    """
    from coevolve.trace import trace_command

    emit(options, *trace_command(**options))


@main.command()
@workspace_options
@click.option("--run", "run_id", metavar="ID", help="Run to take. [default: all]", shell_complete=run_names)
@click.option("--native", is_flag=True, help="Write the tasks of an appworld run as AppWorld has its own instead.")
@protected_option
@click.argument("out", metavar="DIR")
def export(**options: Any) -> None:
    """Write tasks, rollouts and signals as Parquet.

    DIR is a data set for Hugging Face `datasets` too. Texts that may not be passed on are left out.
    """
    from coevolve.export import export_command

    emit(options, *export_command(**options))


@main.command()
@workspace_options
@click.option("--port", type=click.IntRange(0, 65535), default=2024, show_default=True, help="Port, 0 = a free one.")
def studio(**options: Any) -> None:
    """Serve the graphs to LangGraph Studio.

    What `explore`, `validate` and `refine` do with --studio appears there. Ctrl-C ends it.
    """
    from coevolve.studio.server import studio_command

    studio_command(**options, announce=lambda data, shown: emit(options, data, shown))


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete commands and runs.

    For bash: eval "$(coevolve completion bash)" in ~/.bashrc.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "coevolve", "_COEVOLVE_COMPLETE").source())


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@click.option("--workspace", metavar="DIR", help="Workspace to check too. [default: the nearest upward, if any]")
def doctor(**options: Any) -> None:
    """Check machine and workspace, with a fix for each finding."""
    from coevolve.doctor import doctor_command

    findings, shown = doctor_command(options["workspace"])
    emit(options, findings, shown)
    if any(finding["state"] == "fail" for finding in findings):
        sys.exit(1)


@main.group()
def db() -> None:
    """Check journal, index and snapshots, or mend them."""


@db.command()
@workspace_options
def check(**options: Any) -> None:
    """List what is lost, damaged or different.

    Compares index, journal and snapshots; exit code 1 if anything is lost or differs.
    """
    from coevolve.questions import check_command

    problems, shown = check_command(**options)
    emit(options, problems, shown)
    if not all(problem["harmless"] for problem in problems):
        sys.exit(1)


@db.command()
@workspace_options
def rebuild(**options: Any) -> None:
    """Make index and lost snapshots again; no row is dropped.

    The index is made from the journal, snapshots from the rows of the store.
    """
    from coevolve.questions import rebuild_command

    data, shown, errors = rebuild_command(**options)
    emit(options, data, shown)
    if errors:
        raise type(errors[0])("; ".join(map(str, errors)))


@main.group()
def env() -> None:
    """List environments, install what they need, or serve one."""


@env.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def env_list(**options: Any) -> None:
    """List the environments with worlds and tasks."""
    from coevolve.questions import env_list_command

    emit(options, *env_list_command())


@env.command()
@click.argument("name")
@click.option("--root", metavar="DIR", help="appworld: folder for its data. [default: in the cache]")
@click.option("--data", metavar="KIND", help="appworld: download (official) or mini (small, generated).")
def install(name: str, root: str | None, data: str | None) -> None:
    """Install what an environment, or `studio`, needs beyond this package."""
    from coevolve.questions import env_install_command

    click.echo(env_install_command(name, root, data))


@env.command("serve-mcp")
@click.argument("name")
@click.option("--suite", metavar="NAME", help="Serve a held-out suite. [default: the seed tasks]")
@click.option("--task", metavar="ID", help="Serve this one of the tasks alone.")
@click.option(
    "--http", "port", type=click.IntRange(0, 65535), help="Port of this machine, 0 = a free one. [default: stdio]"
)
def serve_mcp(**options: Any) -> None:
    """Let any MCP client play an environment; needs the extra `mcp`.

    Its tools as they are, and list_tasks, new_episode, finish. stdout carries the protocol alone.
    """
    from coevolve.serve_mcp import serve_mcp_command

    serve_mcp_command(**options)


def emit(options: dict[str, Any], data: Any, shown: Any) -> None:
    """Print `data` as JSON or CSV if asked for, else `shown`: a text, a Table, or a list of these."""
    from coevolve import show

    if options.get("as_json") and options.get("as_csv"):
        raise UsageError("--json, --csv: two formats; give one of them")
    if options.get("as_json"):
        click.echo(json.dumps(show.plain(data), ensure_ascii=False, default=show.as_json))
    elif options.get("as_csv"):
        click.echo(show.csv_text(data), nl=False)
    elif shown:
        for part in shown if isinstance(shown, list) else [shown]:
            show.table(part) if not isinstance(part, str) else click.echo(part)


if __name__ == "__main__":
    main()
