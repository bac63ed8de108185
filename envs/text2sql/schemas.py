"""The databases of text2sql: six that are trained on, three (`shifted`) that never are.

A schema is DDL plus a function that fills it for a population number. One question is scored on every
population of its schema, so an answer that is right by luck on one set of rows, or copied from it, is wrong on
another. Names are short because the whole schema is in every prompt (docs/text2sql.md).

Facts that the questions rely on:
- names and titles of a table are unique; measures such as pages, cost, salary, price have no ties;
- money, pages, ages are whole numbers; years are whole numbers, 2019 to 2024 for events;
- only `loan.days`, `grade.score` and `employee.boss_id` may be NULL;
- every author has a book, doctor a visit, purchase an item, student a grade, team a player, dept an employee,
  hotel a room, album a song; other parents may have no children.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from envs.text2sql.draw import (
    CITIES,
    COUNTRIES,
    OTHER_CITIES,
    OTHER_COUNTRIES,
    TITLES,
    YEARS,
    Draw,
)
from store.rows import Split

Rows = dict[str, list[tuple[Any, ...]]]
"""Rows by table, parents before children, values in the order of the table's columns."""

POPULATIONS = (0, 1, 2)
"""The numbers that `Schema.populate` is called with to score a task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    name: str
    """Also the id of the world."""
    split: Split
    """`train` or `shifted`."""
    ddl: str
    """CREATE TABLE statements, parents first, each ended by a semicolon."""
    populate: Callable[[int], Rows]
    """The rows of one population; the same for the same number, always."""


LIBRARY = """\
CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, country TEXT NOT NULL);
CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, author_id INTEGER NOT NULL REFERENCES author(id),
    genre TEXT NOT NULL, pages INTEGER NOT NULL);
CREATE TABLE member (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE loan (id INTEGER PRIMARY KEY, book_id INTEGER NOT NULL REFERENCES book(id),
    member_id INTEGER NOT NULL REFERENCES member(id), year INTEGER NOT NULL, days INTEGER);
"""


def library(population: int) -> Rows:
    draw = Draw("library", population)
    authors = range(1, draw.between(20, 26) + 1)
    books = range(1, draw.between(66, 84) + 1)
    members = range(1, draw.between(40, 50) + 1)
    loans = draw.between(140, 190)
    countries = draw.kinds(COUNTRIES, OTHER_COUNTRIES)
    genres = draw.kinds(["Fantasy", "History", "Crime", "Poetry", "Science"], ["Travel", "Drama", "Horror"])
    cities = draw.kinds(CITIES, OTHER_CITIES)
    written = draw.parents(len(books), authors, cover=True)
    pages = draw.distinct(len(books), 60, 900, 10)
    lent = zip(draw.parents(loans, books, cover=False), draw.parents(loans, members, cover=False), strict=True)
    return {
        "author": [
            (i, name, draw.one(countries)) for i, name in zip(authors, draw.people(len(authors), 28), strict=True)
        ],
        "book": [
            (i, title, written[i - 1], draw.one(genres), pages[i - 1])
            for i, title in zip(books, draw.some(TITLES[:90], len(books)), strict=True)
        ],
        "member": [
            (i, name, draw.one(cities), draw.between(12, 80))
            for i, name in zip(members, draw.people(len(members), 54), strict=True)
        ],
        "loan": [
            (i, book, member, draw.one(YEARS), None if draw.chance(0.12) else draw.between(1, 60))
            for i, (book, member) in enumerate(lent, 1)
        ],
    }


CLINIC = """\
CREATE TABLE doctor (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, specialty TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE patient (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE visit (id INTEGER PRIMARY KEY, doctor_id INTEGER NOT NULL REFERENCES doctor(id),
    patient_id INTEGER NOT NULL REFERENCES patient(id), year INTEGER NOT NULL, cost INTEGER NOT NULL);
CREATE TABLE drug (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, price INTEGER NOT NULL);
CREATE TABLE prescription (visit_id INTEGER NOT NULL REFERENCES visit(id), drug_id INTEGER NOT NULL REFERENCES drug(id),
    days INTEGER NOT NULL, PRIMARY KEY (visit_id, drug_id));
"""

DRUGS = (
    "Alvon Bexil Cortan Dolex Emprin Fenal Gastrin Hexol Ibrin Jotal Kelvex Lumin Mirtan Nexol Optan Pralin Quintex "
    "Relan Solvex Tavin Ultran Vexin Welprin Xanol Zeltan"
).split()


def clinic(population: int) -> Rows:
    draw = Draw("clinic", population)
    doctors = range(1, draw.between(20, 24) + 1)
    patients = range(1, draw.between(56, 72) + 1)
    visits = range(1, draw.between(140, 180) + 1)
    drugs = range(1, draw.between(20, 23) + 1)
    fields = draw.kinds(["Cardiology", "Surgery", "Neurology", "Pediatrics"], ["Oncology", "Urology", "Dentistry"])
    cities = draw.kinds(CITIES, OTHER_CITIES)
    seen_by = draw.parents(len(visits), doctors, cover=True)
    patient = draw.parents(len(visits), patients, cover=False)
    costs = draw.distinct(len(visits), 20, 1500, 5)
    prices = draw.distinct(len(drugs), 5, 120)
    given = sorted({(draw.one(visits), drug) for drug in draw.parents(150, drugs, cover=False)})
    return {
        "doctor": [
            (i, name, draw.one(fields), draw.one(cities))
            for i, name in zip(doctors, draw.people(len(doctors), 26), strict=True)
        ],
        "patient": [
            (i, name, draw.one(cities), draw.between(1, 90))
            for i, name in zip(patients, draw.people(len(patients), 80), strict=True)
        ],
        "visit": [(i, seen_by[i - 1], patient[i - 1], draw.one(YEARS), costs[i - 1]) for i in visits],
        "drug": [(i, name, price) for i, name, price in zip(drugs, draw.some(DRUGS, len(drugs)), prices, strict=True)],
        "prescription": [(visit, drug, draw.between(3, 30)) for visit, drug in given],
    }


SHOP = """\
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, category TEXT NOT NULL, price INTEGER NOT NULL);
CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer(id), year INTEGER NOT NULL);
CREATE TABLE item (purchase_id INTEGER NOT NULL REFERENCES purchase(id),
    product_id INTEGER NOT NULL REFERENCES product(id), quantity INTEGER NOT NULL, PRIMARY KEY (purchase_id, product_id));
"""

PRODUCTS = (
    "Lamp Chair Desk Sofa Shelf Kettle Toaster Blender Teapot Pan Drill Hammer Saw Ladder Wrench Tent Backpack Kayak "
    "Bicycle Helmet Racket Puzzle Kite Robot Doll Yoyo Blanket Pillow Rug Curtain Mirror Clock Vase Candle Basket Mug "
    "Plate Knife Fork Spoon"
).split()


def shop(population: int) -> Rows:
    draw = Draw("shop", population)
    customers = range(1, draw.between(42, 54) + 1)
    products = range(1, draw.between(30, 37) + 1)
    purchases = range(1, draw.between(100, 130) + 1)
    cities = draw.kinds(CITIES, OTHER_CITIES)
    categories = draw.kinds(["Kitchen", "Furniture", "Tools", "Sport", "Toys"], ["Garden", "Office", "Music"])
    prices = draw.distinct(len(products), 5, 400, 5)
    buyers = draw.parents(len(purchases), customers, cover=False)
    sold = [*purchases, *(draw.one(purchases) for _ in range(draw.between(60, 75)))]
    lines = sorted(set(zip(sold, draw.parents(len(sold), products, cover=False), strict=True)))
    return {
        "customer": [
            (i, name, draw.one(cities), draw.between(18, 80))
            for i, name in zip(customers, draw.people(len(customers), 58), strict=True)
        ],
        "product": [
            (i, name, draw.one(categories), price)
            for i, name, price in zip(products, draw.some(PRODUCTS, len(products)), prices, strict=True)
        ],
        "purchase": [(i, buyers[i - 1], draw.one(YEARS)) for i in purchases],
        "item": [(purchase, product, draw.between(1, 9)) for purchase, product in lines],
    }


SCHOOL = """\
CREATE TABLE teacher (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, subject TEXT NOT NULL, salary INTEGER NOT NULL);
CREATE TABLE course (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, teacher_id INTEGER NOT NULL REFERENCES teacher(id),
    credits INTEGER NOT NULL);
CREATE TABLE student (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE grade (student_id INTEGER NOT NULL REFERENCES student(id), course_id INTEGER NOT NULL REFERENCES course(id),
    score INTEGER, PRIMARY KEY (student_id, course_id));
"""

COURSES = [
    f"{level} {topic}"
    for level in ("Basic", "Applied", "Advanced", "Modern")
    for topic in ("Algebra", "Optics", "Genetics", "Drawing", "Rhetoric", "Logic", "Statistics", "Mapping", "Writing")
]


def school(population: int) -> Rows:
    draw = Draw("school", population)
    teachers = range(1, draw.between(20, 24) + 1)
    courses = range(1, draw.between(28, 33) + 1)
    students = range(1, draw.between(56, 70) + 1)
    subjects = draw.kinds(["Math", "Physics", "Biology", "Art"], ["Chemistry", "Geography", "Latin"])
    cities = draw.kinds(CITIES, OTHER_CITIES)
    salaries = draw.distinct(len(teachers), 30000, 80000, 500)
    taught_by = draw.parents(len(courses), teachers, cover=False)
    taken = [*students, *(draw.one(students) for _ in range(draw.between(110, 130)))]
    grades = sorted(set(zip(taken, draw.parents(len(taken), courses, cover=False), strict=True)))
    return {
        "teacher": [
            (i, name, draw.one(subjects), salary)
            for i, name, salary in zip(teachers, draw.people(len(teachers), 26), salaries, strict=True)
        ],
        "course": [
            (i, title, taught_by[i - 1], draw.between(1, 6))
            for i, title in zip(courses, draw.some(COURSES, len(courses)), strict=True)
        ],
        "student": [
            (i, name, draw.one(cities), draw.between(15, 30))
            for i, name in zip(students, draw.people(len(students), 78), strict=True)
        ],
        "grade": [(student, course, None if draw.chance(0.1) else draw.between(30, 100)) for student, course in grades],
    }


LEAGUE = """\
CREATE TABLE team (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, budget INTEGER NOT NULL);
CREATE TABLE player (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, team_id INTEGER NOT NULL REFERENCES team(id),
    position TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE game (id INTEGER PRIMARY KEY, home_id INTEGER NOT NULL REFERENCES team(id),
    away_id INTEGER NOT NULL REFERENCES team(id), year INTEGER NOT NULL, fans INTEGER NOT NULL);
CREATE TABLE goal (game_id INTEGER NOT NULL REFERENCES game(id), player_id INTEGER NOT NULL REFERENCES player(id),
    minute INTEGER NOT NULL);
"""

TEAMS = (
    "Rovers Falcons Wolves Comets Tigers Pirates Giants Sharks Eagles Bears Hawks Lions Rangers Titans Vikings Knights "
    "Panthers Ravens Badgers Foxes Stags Otters Herons Bulls"
).split()


def league(population: int) -> Rows:
    draw = Draw("league", population)
    teams = range(1, draw.between(20, 22) + 1)
    players = range(1, draw.between(110, 130) + 1)
    games = range(1, draw.between(90, 110) + 1)
    cities = draw.kinds(CITIES, OTHER_CITIES)
    positions = draw.kinds(["Keeper", "Defender", "Forward"], ["Midfielder", "Winger", "Sweeper"])
    budgets = draw.distinct(len(teams), 100, 900, 10)
    squad = draw.parents(len(players), teams, cover=True)
    pairs = [draw.some(teams, 2) for _ in games]
    fans = draw.distinct(len(games), 1000, 60000, 100)
    goals = []
    for _ in range(draw.between(160, 190)):
        game = draw.one(games)
        scorer = draw.one([i for i in players if squad[i - 1] in pairs[game - 1]])
        goals.append((game, scorer, draw.between(1, 90)))
    return {
        "team": [
            (i, name, draw.one(cities), budget)
            for i, name, budget in zip(teams, draw.some(TEAMS, len(teams)), budgets, strict=True)
        ],
        "player": [
            (i, name, squad[i - 1], draw.one(positions), draw.between(17, 39))
            for i, name in zip(players, draw.people(len(players), 140), strict=True)
        ],
        "game": [(i, pairs[i - 1][0], pairs[i - 1][1], draw.one(YEARS), fans[i - 1]) for i in games],
        "goal": sorted(set(goals)),
    }


COMPANY = """\
CREATE TABLE dept (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL);
CREATE TABLE employee (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dept_id INTEGER NOT NULL REFERENCES dept(id),
    boss_id INTEGER REFERENCES employee(id), salary INTEGER NOT NULL);
CREATE TABLE project (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, budget INTEGER NOT NULL, year INTEGER NOT NULL);
CREATE TABLE work (employee_id INTEGER NOT NULL REFERENCES employee(id),
    project_id INTEGER NOT NULL REFERENCES project(id), hours INTEGER NOT NULL, PRIMARY KEY (employee_id, project_id));
"""

DEPTS = (
    "Sales Legal Finance Design Support Research Security Quality Logistics Training Payroll Purchasing Marketing "
    "Planning Audit Tax Press Events Fleet Catering Archive Networks"
).split()
PROJECTS = (
    "Apollo Borealis Cobalt Dynamo Everest Fusion Glacier Horizon Indigo Jupiter Krypton Lynx Meteor Nimbus Orion "
    "Phoenix Quasar Rubicon Saturn Tundra Umbra Vortex Zenith Atlas Beacon Comet Delta Ember"
).split()


def company(population: int) -> Rows:
    draw = Draw("company", population)
    depts = range(1, 21)
    employees = range(1, draw.between(76, 92) + 1)
    projects = range(1, draw.between(22, 26) + 1)
    cities = draw.kinds(CITIES, OTHER_CITIES)
    member_of = draw.parents(len(employees), depts, cover=True)
    salaries = draw.distinct(len(employees), 20000, 90000, 500)
    budgets = draw.distinct(len(projects), 5000, 90000, 1000)
    staffed = draw.parents(draw.between(180, 199), projects, cover=False)
    jobs = sorted({(draw.one(employees), project) for project in staffed})
    return {
        "dept": [(i, name, draw.one(cities)) for i, name in zip(depts, draw.some(DEPTS, len(depts)), strict=True)],
        "employee": [
            (i, name, member_of[i - 1], None if i < 8 else draw.between(1, min(i - 1, 20)), salaries[i - 1])
            for i, name in zip(employees, draw.people(len(employees), 100), strict=True)
        ],
        "project": [
            (i, title, budget, draw.one(YEARS))
            for i, title, budget in zip(projects, draw.some(PROJECTS, len(projects)), budgets, strict=True)
        ],
        "work": [(employee, project, draw.between(2, 120)) for employee, project in jobs],
    }


HOTEL = """\
CREATE TABLE hotel (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, stars INTEGER NOT NULL);
CREATE TABLE room (id INTEGER PRIMARY KEY, hotel_id INTEGER NOT NULL REFERENCES hotel(id), kind TEXT NOT NULL,
    price INTEGER NOT NULL);
CREATE TABLE guest (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, country TEXT NOT NULL);
CREATE TABLE stay (id INTEGER PRIMARY KEY, room_id INTEGER NOT NULL REFERENCES room(id),
    guest_id INTEGER NOT NULL REFERENCES guest(id), year INTEGER NOT NULL, nights INTEGER NOT NULL);
"""

HOTELS = (
    "Astoria Bellevue Carlton Dorado Elysee Fairmont Grandview Hilltop Imperial Jasmine Kensington Lakeside Majestic "
    "Nordic Oasis Palace Quayside Regency Savoy Tivoli Union Victoria Westend Zephyr"
).split()


def hotel(population: int) -> Rows:
    draw = Draw("hotel", population)
    hotels = range(1, draw.between(20, 22) + 1)
    rooms = range(1, draw.between(62, 76) + 1)
    guests = range(1, draw.between(42, 52) + 1)
    stays = draw.between(140, 180)
    cities = draw.kinds(CITIES, OTHER_CITIES)
    kinds = draw.kinds(["Single", "Double", "Suite"], ["Family", "Studio", "Loft"])
    countries = draw.kinds(COUNTRIES, OTHER_COUNTRIES)
    owner = draw.parents(len(rooms), hotels, cover=True)
    prices = draw.distinct(len(rooms), 40, 600, 5)
    booked = zip(draw.parents(stays, rooms, cover=False), draw.parents(stays, guests, cover=False), strict=True)
    return {
        "hotel": [
            (i, name, draw.one(cities), draw.between(1, 5))
            for i, name in zip(hotels, draw.some(HOTELS, len(hotels)), strict=True)
        ],
        "room": [(i, owner[i - 1], draw.one(kinds), prices[i - 1]) for i in rooms],
        "guest": [(i, name, draw.one(countries)) for i, name in zip(guests, draw.people(len(guests), 56), strict=True)],
        "stay": [(i, room, guest, draw.one(YEARS), draw.between(1, 14)) for i, (room, guest) in enumerate(booked, 1)],
    }


FARM = """\
CREATE TABLE farm (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, region TEXT NOT NULL, acres INTEGER NOT NULL);
CREATE TABLE worker (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, farm_id INTEGER NOT NULL REFERENCES farm(id),
    wage INTEGER NOT NULL);
CREATE TABLE crop (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, price INTEGER NOT NULL);
CREATE TABLE harvest (id INTEGER PRIMARY KEY, farm_id INTEGER NOT NULL REFERENCES farm(id),
    crop_id INTEGER NOT NULL REFERENCES crop(id), year INTEGER NOT NULL, tons INTEGER NOT NULL);
"""

FARMS = [
    f"{where} {what}"
    for where in ("Oak", "Elm", "Stone", "River", "Sunny", "Fox")
    for what in ("Hill", "Acre", "Vale", "Lea")
]
CROPS = (
    "Wheat Barley Oats Rye Maize Apple Pear Plum Cherry Grape Potato Carrot Onion Leek Beet Bean Pea Lentil Clover Hops "
    "Flax Melon Squash Spinach"
).split()


def farm(population: int) -> Rows:
    draw = Draw("farm", population)
    farms = range(1, draw.between(20, 22) + 1)
    workers = range(1, draw.between(56, 70) + 1)
    crops = range(1, draw.between(20, 22) + 1)
    harvests = draw.between(150, 190)
    regions = draw.kinds(["North", "South", "East", "West"], ["Coast", "Delta", "Highland"])
    kinds = draw.kinds(["Grain", "Fruit", "Vegetable"], ["Fodder", "Fiber", "Herb"])
    acres = draw.distinct(len(farms), 20, 600, 10)
    wages = draw.distinct(len(workers), 1200, 3600, 20)
    prices = draw.distinct(len(crops), 40, 400, 5)
    employer = draw.parents(len(workers), farms, cover=False)
    grown = zip(draw.parents(harvests, farms, cover=False), draw.parents(harvests, crops, cover=False), strict=True)
    return {
        "farm": [
            (i, name, draw.one(regions), size)
            for i, name, size in zip(farms, draw.some(FARMS, len(farms)), acres, strict=True)
        ],
        "worker": [
            (i, name, employer[i - 1], wages[i - 1])
            for i, name in zip(workers, draw.people(len(workers), 76), strict=True)
        ],
        "crop": [
            (i, name, draw.one(kinds), price)
            for i, name, price in zip(crops, draw.some(CROPS, len(crops)), prices, strict=True)
        ],
        "harvest": [(i, site, crop, draw.one(YEARS), draw.between(2, 90)) for i, (site, crop) in enumerate(grown, 1)],
    }


MUSIC = """\
CREATE TABLE band (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, country TEXT NOT NULL, founded INTEGER NOT NULL);
CREATE TABLE album (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, band_id INTEGER NOT NULL REFERENCES band(id),
    year INTEGER NOT NULL, copies INTEGER NOT NULL);
CREATE TABLE song (id INTEGER PRIMARY KEY, title TEXT NOT NULL, album_id INTEGER NOT NULL REFERENCES album(id),
    seconds INTEGER NOT NULL);
CREATE TABLE concert (id INTEGER PRIMARY KEY, band_id INTEGER NOT NULL REFERENCES band(id), city TEXT NOT NULL,
    year INTEGER NOT NULL, fans INTEGER NOT NULL);
"""

BANDS = (
    "Amberline Blackbirds Cicada Driftwood Echoes Foxglove Greyhound Halogen Ivory Junebug Kestrel Lowlands Magnolia "
    "Nightjar Outpost Pinewood Quicksand Redwing Sparrows Tidewater Undertow Velvet Wildfire Yonder"
).split()


def music(population: int) -> Rows:
    draw = Draw("music", population)
    bands = range(1, draw.between(20, 22) + 1)
    albums = range(1, draw.between(52, 64) + 1)
    songs = range(1, draw.between(160, 190) + 1)
    concerts = range(1, draw.between(80, 100) + 1)
    countries = draw.kinds(COUNTRIES, OTHER_COUNTRIES)
    cities = draw.kinds(CITIES, OTHER_CITIES)
    made_by = draw.parents(len(albums), bands, cover=False)
    copies = draw.distinct(len(albums), 1000, 90000, 500)
    on_album = draw.parents(len(songs), albums, cover=True)
    live = draw.parents(len(concerts), bands, cover=False)
    fans = draw.distinct(len(concerts), 200, 20000, 100)
    return {
        "band": [
            (i, name, draw.one(countries), draw.between(1970, 2012))
            for i, name in zip(bands, draw.some(BANDS, len(bands)), strict=True)
        ],
        "album": [
            (i, title, made_by[i - 1], draw.one(YEARS), copies[i - 1])
            for i, title in zip(albums, draw.some(TITLES[:70], len(albums)), strict=True)
        ],
        "song": [(i, draw.one(TITLES), on_album[i - 1], draw.between(90, 420)) for i in songs],
        "concert": [(i, live[i - 1], draw.one(cities), draw.one(YEARS), fans[i - 1]) for i in concerts],
    }


SCHEMAS: dict[str, Schema] = {
    schema.name: schema
    for schema in (
        Schema(name="library", split="train", ddl=LIBRARY, populate=library),
        Schema(name="clinic", split="train", ddl=CLINIC, populate=clinic),
        Schema(name="shop", split="train", ddl=SHOP, populate=shop),
        Schema(name="school", split="train", ddl=SCHOOL, populate=school),
        Schema(name="league", split="train", ddl=LEAGUE, populate=league),
        Schema(name="company", split="train", ddl=COMPANY, populate=company),
        Schema(name="hotel", split="shifted", ddl=HOTEL, populate=hotel),
        Schema(name="farm", split="shifted", ddl=FARM, populate=farm),
        Schema(name="music", split="shifted", ddl=MUSIC, populate=music),
    )
}
