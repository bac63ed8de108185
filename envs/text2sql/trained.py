"""The six databases that text2sql trains on: their tables, and the functions that fill them (schemas.py)."""

from __future__ import annotations

from envs.text2sql.draw import CITIES, COUNTRIES, OTHER_CITIES, OTHER_COUNTRIES, TITLES, YEARS, Draw, Rows, words

LIBRARY = """\
CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, country TEXT NOT NULL);
CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE,
    author_id INTEGER NOT NULL REFERENCES author(id), genre TEXT NOT NULL, pages INTEGER NOT NULL);
CREATE TABLE member (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE loan (id INTEGER PRIMARY KEY, book_id INTEGER NOT NULL REFERENCES book(id),
    member_id INTEGER NOT NULL REFERENCES member(id), year INTEGER NOT NULL, days INTEGER);
"""


def library(population: int) -> Rows:
    draw = Draw("library", population)
    authors = draw.ids(20, 26)
    books = draw.ids(66, 84)
    members = draw.ids(40, 50)
    loans = draw.size(140, 190)
    countries = draw.spread(len(authors), draw.kinds(COUNTRIES, OTHER_COUNTRIES))
    genres = draw.spread(
        len(books), draw.kinds(["Fantasy", "History", "Crime", "Poetry", "Science"], ["Travel", "Drama", "Horror"])
    )
    cities = draw.spread(len(members), draw.kinds(CITIES, OTHER_CITIES))
    written = draw.parents(len(books), authors, cover=True)
    pages = draw.distinct(len(books), 60, 900, 10)
    lent = zip(draw.parents(loans, books, cover=False), draw.parents(loans, members, cover=False), strict=True)
    return {
        "author": [(i, name, countries[i - 1]) for i, name in zip(authors, draw.people(len(authors), 28), strict=True)],
        "book": [
            (i, title, written[i - 1], genres[i - 1], pages[i - 1])
            for i, title in zip(books, draw.some(TITLES[:90], len(books)), strict=True)
        ],
        "member": [
            (i, name, cities[i - 1], draw.between(12, 80))
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

DRUGS = words(
    "Alvon Bexil Cortan Dolex Emprin Fenal Gastrin Hexol Ibrin Jotal Kelvex Lumin Mirtan Nexol Optan Pralin Quintex "
    "Relan Solvex Tavin Ultran Vexin Welprin Xanol Zeltan"
)


def clinic(population: int) -> Rows:
    draw = Draw("clinic", population)
    doctors = draw.ids(20, 24)
    patients = draw.ids(56, 72)
    visits = draw.ids(140, 180)
    drugs = draw.ids(20, 23)
    fields = draw.spread(
        len(doctors),
        draw.kinds(["Cardiology", "Surgery", "Neurology", "Pediatrics"], ["Oncology", "Urology", "Dentistry"]),
    )
    cities = draw.kinds(CITIES, OTHER_CITIES)
    at, homes = draw.spread(len(doctors), cities), draw.spread(len(patients), cities)
    seen_by = draw.parents(len(visits), doctors, cover=True)
    patient = draw.parents(len(visits), patients, cover=False)
    costs = draw.distinct(len(visits), 20, 1500, 5)
    prices = draw.distinct(len(drugs), 5, 120)
    given = sorted({(draw.one(visits), drug) for drug in draw.parents(150, drugs, cover=False)})
    return {
        "doctor": [
            (i, name, fields[i - 1], at[i - 1]) for i, name in zip(doctors, draw.people(len(doctors), 26), strict=True)
        ],
        "patient": [
            (i, name, homes[i - 1], draw.between(1, 90))
            for i, name in zip(patients, draw.people(len(patients), 80), strict=True)
        ],
        "visit": [(i, seen_by[i - 1], patient[i - 1], draw.one(YEARS), costs[i - 1]) for i in visits],
        "drug": [(i, name, price) for i, name, price in zip(drugs, draw.some(DRUGS, len(drugs)), prices, strict=True)],
        "prescription": [(visit, drug, draw.between(3, 30)) for visit, drug in given],
    }


SHOP = """\
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, category TEXT NOT NULL,
    price INTEGER NOT NULL);
CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer(id),
    year INTEGER NOT NULL);
CREATE TABLE item (purchase_id INTEGER NOT NULL REFERENCES purchase(id),
    product_id INTEGER NOT NULL REFERENCES product(id), quantity INTEGER NOT NULL,
    PRIMARY KEY (purchase_id, product_id));
"""

PRODUCTS = words(
    "Lamp Chair Desk Sofa Shelf Kettle Toaster Blender Teapot Pan Drill Hammer Saw Ladder Wrench Tent Backpack Kayak "
    "Bicycle Helmet Racket Puzzle Kite Robot Doll Yoyo Blanket Pillow Rug Curtain Mirror Clock Vase Candle Basket Mug "
    "Plate Knife Fork Spoon"
)


def shop(population: int) -> Rows:
    draw = Draw("shop", population)
    customers = draw.ids(42, 54)
    products = draw.ids(30, 37)
    purchases = draw.ids(100, 130)
    cities = draw.spread(len(customers), draw.kinds(CITIES, OTHER_CITIES))
    categories = draw.spread(
        len(products), draw.kinds(["Kitchen", "Furniture", "Tools", "Sport", "Toys"], ["Garden", "Office", "Music"])
    )
    prices = draw.distinct(len(products), 5, 400, 5)
    buyers = draw.parents(len(purchases), customers, cover=False)
    sold = [*purchases, *(draw.one(purchases) for _ in range(draw.between(60, 75)))]
    lines = sorted(set(zip(sold, draw.parents(len(sold), products, cover=False), strict=True)))
    return {
        "customer": [
            (i, name, cities[i - 1], draw.between(18, 80))
            for i, name in zip(customers, draw.people(len(customers), 58), strict=True)
        ],
        "product": [
            (i, name, categories[i - 1], price)
            for i, name, price in zip(products, draw.some(PRODUCTS, len(products)), prices, strict=True)
        ],
        "purchase": [(i, buyers[i - 1], draw.one(YEARS)) for i in purchases],
        "item": [(purchase, product, draw.between(1, 9)) for purchase, product in lines],
    }


SCHOOL = """\
CREATE TABLE teacher (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, subject TEXT NOT NULL,
    salary INTEGER NOT NULL);
CREATE TABLE course (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE,
    teacher_id INTEGER NOT NULL REFERENCES teacher(id), credits INTEGER NOT NULL);
CREATE TABLE student (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE grade (student_id INTEGER NOT NULL REFERENCES student(id),
    course_id INTEGER NOT NULL REFERENCES course(id), score INTEGER, PRIMARY KEY (student_id, course_id));
"""

COURSES = [
    f"{level} {topic}"
    for level in ("Basic", "Applied", "Advanced", "Modern")
    for topic in ("Algebra", "Optics", "Genetics", "Drawing", "Rhetoric", "Logic", "Statistics", "Mapping", "Writing")
]


def school(population: int) -> Rows:
    draw = Draw("school", population)
    teachers = draw.ids(20, 24)
    courses = draw.ids(28, 33)
    students = draw.ids(56, 70)
    subjects = draw.spread(
        len(teachers), draw.kinds(["Math", "Physics", "Biology", "Art"], ["Chemistry", "Geography", "Latin"])
    )
    cities = draw.spread(len(students), draw.kinds(CITIES, OTHER_CITIES))
    salaries = draw.distinct(len(teachers), 30000, 80000, 500)
    taught_by = draw.parents(len(courses), teachers, cover=False)
    taken = [*students, *(draw.one(students) for _ in range(draw.between(110, 130)))]
    grades = sorted(set(zip(taken, draw.parents(len(taken), courses, cover=False), strict=True)))
    return {
        "teacher": [
            (i, name, subjects[i - 1], salary)
            for i, name, salary in zip(teachers, draw.people(len(teachers), 26), salaries, strict=True)
        ],
        "course": [
            (i, title, taught_by[i - 1], draw.between(1, 6))
            for i, title in zip(courses, draw.some(COURSES, len(courses)), strict=True)
        ],
        "student": [
            (i, name, cities[i - 1], draw.between(15, 30))
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

TEAMS = words(
    "Rovers Falcons Wolves Comets Tigers Pirates Giants Sharks Eagles Bears Hawks Lions Rangers Titans Vikings Knights "
    "Panthers Ravens Badgers Foxes Stags Otters Herons Bulls"
)


def league(population: int) -> Rows:
    draw = Draw("league", population)
    teams = draw.ids(20, 22)
    players = draw.ids(110, 130)
    games = draw.ids(90, 110)
    cities = draw.spread(len(teams), draw.kinds(CITIES, OTHER_CITIES))
    positions = draw.spread(
        len(players), draw.kinds(["Keeper", "Defender", "Forward"], ["Midfielder", "Winger", "Sweeper"])
    )
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
            (i, name, cities[i - 1], budget)
            for i, name, budget in zip(teams, draw.some(TEAMS, len(teams)), budgets, strict=True)
        ],
        "player": [
            (i, name, squad[i - 1], positions[i - 1], draw.between(17, 39))
            for i, name in zip(players, draw.people(len(players), 140), strict=True)
        ],
        "game": [(i, pairs[i - 1][0], pairs[i - 1][1], draw.one(YEARS), fans[i - 1]) for i in games],
        "goal": sorted(set(goals)),
    }


COMPANY = """\
CREATE TABLE dept (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL);
CREATE TABLE employee (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dept_id INTEGER NOT NULL REFERENCES dept(id),
    boss_id INTEGER REFERENCES employee(id), salary INTEGER NOT NULL);
CREATE TABLE project (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, budget INTEGER NOT NULL,
    year INTEGER NOT NULL);
CREATE TABLE work (employee_id INTEGER NOT NULL REFERENCES employee(id),
    project_id INTEGER NOT NULL REFERENCES project(id), hours INTEGER NOT NULL, PRIMARY KEY (employee_id, project_id));
"""

DEPTS = words(
    "Sales Legal Finance Design Support Research Security Quality Logistics Training Payroll Purchasing Marketing "
    "Planning Audit Tax Press Events Fleet Catering Archive Networks"
)
PROJECTS = words(
    "Apollo Borealis Cobalt Dynamo Everest Fusion Glacier Horizon Indigo Jupiter Krypton Lynx Meteor Nimbus Orion "
    "Phoenix Quasar Rubicon Saturn Tundra Umbra Vortex Zenith Atlas Beacon Comet Delta Ember"
)


def company(population: int) -> Rows:
    draw = Draw("company", population)
    heads = 6 + population % 3
    depts = draw.ids(20, 22)
    employees = draw.ids(76, 92)
    projects = draw.ids(22, 26)
    cities = draw.spread(len(depts), draw.kinds(CITIES, OTHER_CITIES))
    years = draw.spread(len(projects), YEARS)
    member_of = draw.parents(len(employees), depts, cover=True)
    salaries = draw.distinct(len(employees), 20000, 90000, 500)
    budgets = draw.distinct(len(projects), 5000, 90000, 1000)
    staffed = draw.parents(draw.between(180, 199), projects, cover=False)
    jobs = sorted({(draw.one(employees), project) for project in staffed})
    return {
        "dept": [(i, name, cities[i - 1]) for i, name in zip(depts, draw.some(DEPTS, len(depts)), strict=True)],
        "employee": [
            (i, name, member_of[i - 1], None if i <= heads else draw.between(1, min(i - 1, 20)), salaries[i - 1])
            for i, name in zip(employees, draw.people(len(employees), 100), strict=True)
        ],
        "project": [
            (i, title, budget, years[i - 1])
            for i, title, budget in zip(projects, draw.some(PROJECTS, len(projects)), budgets, strict=True)
        ],
        "work": [(employee, project, draw.between(2, 120)) for employee, project in jobs],
    }
