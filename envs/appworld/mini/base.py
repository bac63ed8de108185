"""The base databases of all apps, and the API documents."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime
from typing import Any

from appworld.apps import get_all_apps
from appworld.apps.api_lib import CompanyNotifier, save_local_dbs, set_local_dbs
from appworld.apps.model_lib import CachedDBHandler, ModelHashHandler
from appworld.collections.api_docs import ApiDocCollection
from appworld.collections.apis import ApiCollection
from appworld.common.constants import CANARY_STRING, DB_VERSION
from appworld.common.random import set_random_seed
from appworld.common.utils import freeze_time, import_models_module

from envs.appworld.mini.people import CHORES, NOTES, PEOPLE, PRODUCTS, SONGS, Person, songs_of

THEN = datetime(2022, 6, 1, 9)
APPS = get_all_apps()
OPEN_APPS = get_all_apps(skip_admin=True)
ACCOUNTS = [app for app in OPEN_APPS if app not in ("api_docs", "supervisor")]
MEMORY = ":memory:base"
Ids = dict[str, dict[str, int]]
"""{app: {first name: user id}}"""


def build_base(data: str) -> int:
    """The number of API documents."""
    shutil.rmtree(data, ignore_errors=True)
    os.makedirs(os.path.join(data, "base_dbs"))
    set_random_seed(100)
    set_local_dbs(MEMORY, MEMORY, APPS, create=True)
    with freeze_time(THEN):
        ids = _accounts()
        for make in (_friends, _files_and_notes, _music, _shop, _chores):
            make(ids)
    _talk()
    documents = _documents(data)
    for row in documents:
        models("api_docs").ApiDoc.create_save(**row)
    save_local_dbs(
        from_db_home_path=MEMORY,
        to_db_home_path=os.path.join(data, "base_dbs"),
        format="full",
        app_names=list(APPS),
        delete_if_exists=True,
        save_model_hashes=False,
    )
    CachedDBHandler.reset()
    ModelHashHandler.reset()
    with open(os.path.join(data, "version.txt"), "w") as file:
        file.write(DB_VERSION)
    return len(documents)


def models(app: str) -> Any:
    return import_models_module(app)


def _accounts() -> Ids:
    ids: Ids = {app: {} for app in ACCOUNTS}
    for number, person in enumerate(PEOPLE, 1):
        _citizen(person, number)
        for app in ACCOUNTS:
            user = models(app).User
            fields: dict[str, Any] = {
                "first_name": person.first,
                "last_name": person.last,
                "password": person.password(app),
                "created_at": THEN,
                "last_logged_in": THEN,
            }
            fields |= {"phone_number": person.phone} if app == "phone" else {"email": person.email}
            fields |= {"verified": True} if "verified" in user.__fields__ else {}
            fields |= {"venmo_balance": 200.0 + 10 * number} if app == "venmo" else {}
            ids[app][person.first] = user.create_save(**fields).id
    for app in ACCOUNTS:
        CompanyNotifier(app).create_accounts(skip_if_exists=True)
    return ids


def _citizen(person: Person, number: int) -> None:
    admin = models("admin")
    main = admin.MainUser.create_save(
        first_name=person.first,
        last_name=person.last,
        email=person.email,
        phone_number=person.phone,
        birthday=person.birthday,
        sex=person.sex,
    )
    admin.PaymentCard.create_save(main_user_id=main.id, balance=1000.0, **_card(person, number))
    for app in ACCOUNTS:
        admin.AccountPassword.create_save(main_user_id=main.id, account_name=app, password=person.password(app))


def _card(person: Person, number: int) -> dict[str, Any]:
    return {
        "owner_name": f"{person.first} {person.last}",
        "card_name": "Visa",
        "card_number": 4000000000000000 + number,
        "expiry_year": 2030,
        "expiry_month": 5,
        "cvv_number": 100 + number,
    }


def _friends(ids: Ids) -> None:
    for number, person in enumerate(PEOPLE, 1):
        venmo = ids["venmo"][person.first]
        models("venmo").PaymentCard.create_save(user_id=venmo, **_card(person, number))
        for other_number, other in enumerate(PEOPLE, 1):
            if other is person:
                continue
            if number < other_number:
                models("admin").Friendship.create_save(main_user_id=number, friend_id=other_number)
            models("phone").Contact.create_save(
                user_id=ids["phone"][person.first],
                first_name=other.first,
                last_name=other.last,
                email=other.email,
                phone_number=other.phone,
                relationships=["friend"],
                created_at=THEN,
            )
            models("venmo").Friendship.create_save(user_id=venmo, friend_id=ids["venmo"][other.first], created_at=THEN)


def _files_and_notes(ids: Ids) -> None:
    files = models("file_system")
    for number, person in enumerate(PEOPLE):
        owner: dict[str, Any] = {
            "user_id": ids["file_system"][person.first],
            "created_at": THEN,
            "updated_at": THEN,
        }
        for path in ("/", "/home/", person.home, f"{person.home}documents/"):
            files.Directory.create_save(path=path, **owner)
        for chore in CHORES[: 1 + number % 3]:
            path = f"{person.home}documents/{chore.lower().replace(' ', '_')}.txt"
            files.File.create_save(path=path, content=f"{chore}\nbefore Sunday", **owner)
        for title, content in NOTES[: 1 + number % 3]:
            owner["user_id"] = ids["simple_note"][person.first]
            models("simple_note").Note.create_save(title=title, content=content, tags=["home"], **owner)


def _music(ids: Ids) -> None:
    spotify = models("spotify")
    artists = [spotify.Artist.create_save(name=name, genre="pop", created_at=THEN) for name in ("The Testers", "Lumen")]
    for number, (title, genre, seconds) in enumerate(SONGS):
        spotify.Song.create_save(
            title=title,
            artist_ids=[artists[number % 2].id],
            album_id=None,
            duration=seconds,
            release_date=THEN,
            genre=genre,
            play_count=10 * (number + 1),
            rating=3.0 + number / 10,
            like_count=0,
            review_count=0,
        )
    for number, person in enumerate(PEOPLE):
        user = ids["spotify"][person.first]
        for song in songs_of(number):
            spotify.UserLibrarySong.create_save(user_id=user, song_id=song, created_at=THEN)
        spotify.MusicPlayer.create_save(
            user_id=user,
            queue_song_ids=[1, 2],
            is_playing=False,
            is_looping=False,
            cursor_position=0,
            played_seconds=0,
            volume=5,
        )


def _shop(ids: Ids) -> None:
    amazon = models("amazon")
    seller = amazon.Seller.create_save(name="Plain Goods", rating=4.0)
    for number, name in enumerate(PRODUCTS):
        colour, kind = name.lower().split()
        amazon.Product.create_save(
            product_type=kind,
            name=name,
            description=f"A plain {name}.",
            seller_id=seller.id,
            price=10.0 * (number + 1),
            delivery_days=3,
            inventory_quantity=50,
            weight=1.0,
            length=1.0,
            width=1.0,
            height=1.0,
            color=colour,
            relative_size="small",
            rating=4.0,
            seller_rating=4.0,
            has_variations=False,
        )


def _chores(ids: Ids) -> None:
    todoist = models("todoist")
    for number, person in enumerate(PEOPLE):
        user = ids["todoist"][person.first]
        project = todoist.Project.create_save(
            user_id=user, name="Inbox", color="charcoal", is_inbox=True, description="", created_at=THEN
        )
        todoist.ProjectCollaboratorLink.create_save(
            project_id=project.id, user_id=user, is_favorite=False, is_archived=False, created_at=THEN
        )
        for order, title in enumerate(CHORES[: 1 + number % 3]):
            todoist.Task.create_save(
                project_id=project.id,
                section_id=None,
                user_id=user,
                title=title,
                description="",
                priority="low",
                is_completed=False,
                order_index=order,
                created_at=THEN,
            )


def _talk() -> None:
    """Mails, messages, alarms and shared expenses, through the APIs themselves: these rows hang together."""
    apis, requester = ApiCollection.load(
        to_db_home_path=MEMORY, from_db_home_path=MEMORY, date_and_time=THEN, load_apps=APPS, max_num_requests=None
    )
    for number, person in enumerate(PEOPLE):
        other = PEOPLE[(number + 1) % len(PEOPLE)]
        token = {
            app: apis[app].login(
                username=person.phone if app == "phone" else person.email, password=person.password(app)
            )["access_token"]
            for app in ("gmail", "phone", "splitwise")
        }
        apis.gmail.send_email(
            email_addresses=[other.email],
            subject=f"Dinner at {person.first}'s",
            body="Is Friday at 7 good for you?",
            access_token=token["gmail"],
        )
        apis.phone.send_text_message(
            phone_number=other.phone, message=f"Running late, {person.first}", access_token=token["phone"]
        )
        apis.phone.create_alarm(time=f"0{6 + number % 3}:30", label="Wake up", access_token=token["phone"])
        apis.splitwise.record_expense(
            description="Pizza",
            paid_amount=20 + number,
            payer_email=person.email,
            debtor_emails=[person.email, other.email],
            access_token=token["splitwise"],
        )
    requester.close()


def _documents(data: str) -> list[dict[str, Any]]:
    """Writes them where the engine reads them; one row each for the app `api_docs`."""
    docs = ApiDocCollection.build(load_apps=tuple(OPEN_APPS), include_response_schemas=True)
    folder = os.path.join(data, "api_docs", "standard")
    os.makedirs(folder)
    kept = ("api_name", "path", "method", "description", "parameters", "response_schemas")
    for app, apis in docs.items():
        with open(os.path.join(folder, f"{app}.json"), "w") as file:
            json.dump({name: {**doc, "canary_string": CANARY_STRING} for name, doc in apis.items()}, file)
    return [
        {"app_name_": app, **{key: doc[key] for key in kept}} for app, apis in docs.items() for doc in apis.values()
    ]
