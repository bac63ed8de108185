"""Six scenarios of three tasks: the start state, the assertions and a solution of each, as official tasks have them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from textwrap import dedent, indent
from typing import Any

from appworld.collections.models import ModelCollection
from appworld.common.constants import CANARY_STRING, DB_VERSION
from appworld.common.utils import freeze_time

from envs.appworld.mini.base import APPS
from envs.appworld.mini.people import PEOPLE, SONGS, Person, songs_of

NOW = datetime(2023, 5, 18, 12)
SPLITS = {
    "train": ("mini001", "mini002", "mini003"),
    "dev": ("mini004",),
    "test_normal": ("mini005",),
    "test_challenge": ("mini006",),
}
"""{split: scenarios}"""
LOGIN = """
def login(apis, app, by="email"):
    passwords = {row["account_name"]: row["password"] for row in apis.supervisor.show_account_passwords()}
    return apis[app].login(username=apis.supervisor.show_profile()[by], password=passwords[app])["access_token"]
"""
SONG_LOOP = """
songs, page = [], 0
while found := apis.spotify.show_song_library(access_token=token, page_index=page, page_limit=20):
    songs, page = songs + found, page + 1
"""


@dataclass(frozen=True)
class MiniTask:
    id: str
    person: Person
    instruction: str
    app: str
    solution: str
    """Python with `token` at hand."""
    answer: Any = None
    changed: tuple[str, ...] = ()
    """Models that the task changes; the first one gets one new or changed row."""
    record: dict[str, Any] = field(default_factory=dict)
    """Fields of that row."""
    kind: str = "added"
    difficulty: int = 1


def all_tasks() -> Iterator[MiniTask]:
    for number, who in enumerate((0, 1, 2), 1):
        person = PEOPLE[who]
        yield MiniTask(
            id=f"mini001_{number}",
            person=person,
            instruction="How many songs are in my Spotify song library?",
            app="spotify",
            solution=SONG_LOOP + "apis.supervisor.complete_task(answer=len(songs))",
            answer=len(songs_of(who)),
        )
    for number, (who, amount, note) in enumerate(((0, 13, "lunch"), (3, 27, "tickets"), (5, 8, "coffee")), 1):
        yield _payment(f"mini002_{number}", PEOPLE[who], PEOPLE[who + 1], amount, note)
    for number, (who, title, content) in enumerate(
        ((2, "Trip", "pack boots"), (3, "Menu", "soup and bread"), (4, "Garden", "sow beans")), 1
    ):
        yield MiniTask(
            id=f"mini003_{number}",
            person=PEOPLE[who],
            instruction=f'Make a note titled "{title}" with the text "{content}" in my Simple Note account.',
            app="simple_note",
            solution=f"apis.simple_note.create_note(title={title!r}, content={content!r}, access_token=token)\n"
            "apis.supervisor.complete_task()",
            changed=("simple_note.Note",),
            record={"title": title, "content": content},
        )
    for number, (who, words) in enumerate(((4, "See you at 5"), (5, "Keys are inside"), (6, "Call me back")), 1):
        other = PEOPLE[(who + 2) % len(PEOPLE)]
        yield MiniTask(
            id=f"mini004_{number}",
            person=PEOPLE[who],
            instruction=f'Send my friend {other.first} a text message that says "{words}".',
            app="phone",
            solution=dedent(f"""
                friend = apis.phone.search_contacts(access_token=token, query="{other.first}")[0]
                apis.phone.send_text_message(phone_number=friend["phone_number"], message="{words}", access_token=token)
                apis.supervisor.complete_task()
            """),
            changed=("phone.TextMessage", "phone.GlobalTextMessage", "phone.UserTextMessage"),
            record={"message": words},
        )
    for number, who in enumerate((5, 6, 7), 1):
        longest = max((SONGS[song - 1] for song in songs_of(who)), key=lambda song: song[2])
        yield MiniTask(
            id=f"mini005_{number}",
            person=PEOPLE[who],
            instruction="What is the title of the longest song in my Spotify song library?",
            app="spotify",
            solution=SONG_LOOP
            + 'longest = max(songs, key=lambda song: song["duration"])\n'
            + 'apis.supervisor.complete_task(answer=longest["title"])',
            answer=longest[0],
            difficulty=2,
        )
    for number, who in enumerate((1, 2, 4), 1):
        yield MiniTask(
            id=f"mini006_{number}",
            person=PEOPLE[who],
            instruction='Mark the task "Water plants" in my Todoist inbox as done.',
            app="todoist",
            solution=dedent("""
                inbox = apis.todoist.show_projects(access_token=token)[0]
                tasks = apis.todoist.show_tasks(project_id=inbox["project_id"], access_token=token)
                task = [task for task in tasks["no_section_tasks"] if task["title"] == "Water plants"][0]
                apis.todoist.update_task(task_id=task["task_id"], is_completed=True, access_token=token)
                apis.supervisor.complete_task()
            """),
            changed=("todoist.Task",),
            record={"title": "Water plants", "is_completed": True},
            kind="updated",
            difficulty=3,
        )


def _payment(name: str, person: Person, to: Person, amount: int, note: str) -> MiniTask:
    return MiniTask(
        id=name,
        person=person,
        instruction=f'Send ${amount} on Venmo to my friend {to.first} with the description "{note}".',
        app="venmo",
        solution=dedent(f"""
            friends = apis.venmo.search_friends(access_token=token, query="{to.first}")
            friend = [friend for friend in friends if friend["first_name"] == "{to.first}"][0]
            apis.venmo.create_transaction(
                access_token=token, receiver_email=friend["email"], amount={amount}, description="{note}"
            )
            apis.supervisor.complete_task()
        """),
        changed=("venmo.Transaction", "venmo.User", "venmo.Notification"),
        record={"amount": float(amount), "description": note},
        difficulty=2,
    )


def build_tasks(data: str) -> dict[str, int]:
    """{split: number of tasks}."""
    made = list(all_tasks())
    for task in made:
        _build(data, task)
    names = {split: [task.id for task in made if task.id[:7] in scenarios] for split, scenarios in SPLITS.items()}
    os.makedirs(os.path.join(data, "datasets"), exist_ok=True)
    for split, ids in names.items():
        _write(os.path.join(data, "datasets", f"{split}.txt"), "\n".join(ids) + "\n")
    return {split: len(ids) for split, ids in names.items()}


def _build(data: str, task: MiniTask) -> None:
    folder = os.path.join(data, "tasks", task.id)
    _start_state(data, folder, task)
    person = task.person
    specs = {
        "instruction": task.instruction,
        "supervisor": {
            "first_name": person.first,
            "last_name": person.last,
            "email": person.email,
            "phone_number": person.phone,
        },
        "datetime": NOW.isoformat(),
        "db_version": DB_VERSION,
        "canary_string": CANARY_STRING,
    }
    _write(os.path.join(folder, "specs.json"), json.dumps(specs))
    truth = os.path.join(folder, "ground_truth")
    os.makedirs(truth, exist_ok=True)
    metadata = {
        "mode": "full",
        "difficulty": task.difficulty,
        "num_apps": 1,
        "num_apis": 2,
        "num_api_calls": 3,
        "num_solution_code_lines": 3,
    }
    files = {"metadata": metadata, "public_data": {}, "private_data": {}, "answer": task.answer}
    files |= {"test_data": _labels(task), "required_apps": [task.app]}
    for name, content in files.items():
        _write(os.path.join(truth, f"{name}.json"), json.dumps(content))
    body = f'token = login(apis, "{task.app}", "{"phone_number" if task.app == "phone" else "email"}")\n'
    solution = LOGIN + "\n\ndef solution(apis, requester):\n" + indent(body + task.solution.strip(), "    ") + "\n"
    for name, code in (("evaluation", _assertions(task)), ("solution", solution), ("compiled_solution", solution)):
        _write(os.path.join(truth, f"{name}.py"), f"# Canary String: {CANARY_STRING}\n{code}")


def _start_state(data: str, folder: str, task: MiniTask) -> None:
    """What lies on top of the base databases: who the supervisor is, and what is asked of the agent."""
    memory = f":memory:build-{task.id}"
    base = os.path.join(data, "base_dbs")
    world = ModelCollection.load(to_db_home_path=memory, from_db_home_path=base, load_apps=list(APPS))
    person = task.person
    with freeze_time(NOW):
        supervisor = world.supervisor.Supervisor.create_save(
            first_name=person.first,
            last_name=person.last,
            email=person.email,
            phone_number=person.phone,
            birthday=person.birthday,
            sex=person.sex,
        )
        own = {"supervisor_id": supervisor.id}
        world.supervisor.Task.create_save(instruction=task.instruction, **own)
        main = world.admin.MainUser.find_one(email=person.email)
        fields = ("owner_name", "card_name", "card_number", "expiry_year", "expiry_month", "cvv_number")
        for card in world.admin.PaymentCard.find_all(main_user_id=main.id):
            world.supervisor.PaymentCard.create_save(**{name: getattr(card, name) for name in fields}, **own)
        for account in world.admin.AccountPassword.find_all(main_user_id=main.id):
            world.supervisor.AccountPassword.create_save(
                account_name=account.account_name, password=account.password, **own
            )
        world.supervisor.Address.create_save(
            name="Home",
            street_address="1 Test St",
            city="Testville",
            state="TS",
            country="Testland",
            zip_code=12345,
            **own,
        )
    os.makedirs(folder, exist_ok=True)
    world.save(os.path.join(folder, "dbs"), format="changes", app_names=list(APPS), delete_if_exists=True)
    world.close()


ANSWER = "assert answers match."
MODELS = "assert only the expected models changed."
RECORD = "assert one record changed as asked."


def _labels(task: MiniTask) -> list[dict[str, str]]:
    """What a no-op fails and what it passes."""
    asks = [(ANSWER, "no_op_fail"), (MODELS, "no_op_fail" if task.changed else "no_op_pass")]
    asks += [(RECORD, "no_op_fail")] if task.changed else []
    return [{"requirement": requirement, "label": label} for requirement, label in asks]


def _assertions(task: MiniTask) -> str:
    code = f'''
import json


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    names = models.changed_model_names()
    with test("{ANSWER}"):
        test.case(models.end.supervisor.Task.first().status, "==", "success")
        test.answer(json.loads(models.end.supervisor.Task.first().answer), ground_truth_answer)
    with test("{MODELS}"):
        test.case(names - {set(task.changed)!r}, "==", set())
'''
    if task.changed:
        place = 0 if task.kind == "added" else 1
        code += f'''        test.case(len(names), ">", 0)
    with test("{RECORD}"):
        name = [name for name in {list(task.changed)!r} if name in names][0]
        found = models.changed_records(name)
        test.case([len(rows) for rows in found], "==", {[int(at == place) for at in range(3)]!r})
        row = found[{place}][0]
        test.case({{key: getattr(row, key) for key in {list(task.record)!r}}}, "==", {task.record!r})
'''
    return code.lstrip()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
