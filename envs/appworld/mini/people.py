"""Who lives in the small world, and what they own. All of it is made up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Person:
    first: str
    last: str
    phone: str
    birthday: str
    sex: str

    @property
    def email(self) -> str:
        return f"{self.first}.{self.last}@gmail.com".lower()

    @property
    def home(self) -> str:
        return f"/home/{self.first.lower()}/"

    def password(self, app: str) -> str:
        return f"{self.first.lower()}-{app}-pw"


PEOPLE = [
    Person("Ada", "Stone", "5550000001", "1990-01-02", "female"),
    Person("Ben", "Rivers", "5550000002", "1988-03-04", "male"),
    Person("Cleo", "Marsh", "5550000003", "1995-05-06", "female"),
    Person("Dan", "Hill", "5550000004", "1979-07-08", "male"),
    Person("Eve", "Brook", "5550000005", "1985-09-10", "female"),
    Person("Finn", "Moor", "5550000006", "1992-11-12", "male"),
    Person("Gia", "Field", "5550000007", "1998-02-03", "female"),
    Person("Hal", "Lake", "5550000008", "1983-04-05", "male"),
]
SONGS = [
    ("Quiet River", "pop", 181),
    ("Paper Moon", "jazz", 200),
    ("Iron Sky", "rock", 240),
    ("Soft Rain", "pop", 175),
    ("Night Bus", "indie", 222),
    ("Amber Light", "jazz", 260),
    ("Slow Train", "blues", 301),
    ("Glass Harbour", "indie", 166),
    ("Seven Lanterns", "folk", 214),
    ("Cold Coffee", "pop", 193),
    ("Long Way Down", "rock", 278),
    ("Copper Wire", "jazz", 232),
]
PRODUCTS = ["Blue Kettle", "Red Mug", "Green Lamp", "Grey Blanket", "White Plate", "Black Clock"]
NOTES = [("Groceries", "milk, eggs, bread"), ("Books to read", "Middlemarch; The Sea"), ("Gift ideas", "a scarf")]
CHORES = ["Water plants", "Pay rent", "Call the plumber"]


def songs_of(person: int) -> range:
    """Ids of the songs in a person's library: numbers, lengths and longest songs differ between people."""
    return range(1 + person % 4, 4 + person % 4 + (person * 3) % 5)
