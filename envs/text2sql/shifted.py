"""The three databases that no task is ever trained on: other words, other tables, the same kinds of questions."""

from __future__ import annotations

from envs.text2sql.draw import CITIES, COUNTRIES, OTHER_CITIES, OTHER_COUNTRIES, TITLES, YEARS, Draw, Rows, words

HOTEL = """\
CREATE TABLE hotel (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, stars INTEGER NOT NULL);
CREATE TABLE room (id INTEGER PRIMARY KEY, hotel_id INTEGER NOT NULL REFERENCES hotel(id), kind TEXT NOT NULL,
    price INTEGER NOT NULL);
CREATE TABLE guest (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, country TEXT NOT NULL);
CREATE TABLE stay (id INTEGER PRIMARY KEY, room_id INTEGER NOT NULL REFERENCES room(id),
    guest_id INTEGER NOT NULL REFERENCES guest(id), year INTEGER NOT NULL, nights INTEGER NOT NULL);
"""

HOTELS = words(
    "Astoria Bellevue Carlton Dorado Elysee Fairmont Grandview Hilltop Imperial Jasmine Kensington Lakeside Majestic "
    "Nordic Oasis Palace Quayside Regency Savoy Tivoli Union Victoria Westend Zephyr"
)


def hotel(population: int) -> Rows:
    draw = Draw("hotel", population)
    hotels = draw.ids(20, 22)
    rooms = draw.ids(62, 76)
    guests = draw.ids(42, 52)
    stays = draw.size(140, 180)
    cities = draw.spread(len(hotels), draw.kinds(CITIES, OTHER_CITIES))
    kinds = draw.spread(len(rooms), draw.kinds(["Single", "Double", "Suite"], ["Family", "Studio", "Loft"]))
    countries = draw.spread(len(guests), draw.kinds(COUNTRIES, OTHER_COUNTRIES))
    owner = draw.parents(len(rooms), hotels, cover=True)
    prices = draw.distinct(len(rooms), 40, 600, 5)
    booked = zip(draw.parents(stays, rooms, cover=False), draw.parents(stays, guests, cover=False), strict=True)
    return {
        "hotel": [
            (i, name, cities[i - 1], draw.between(1, 5))
            for i, name in zip(hotels, draw.some(HOTELS, len(hotels)), strict=True)
        ],
        "room": [(i, owner[i - 1], kinds[i - 1], prices[i - 1]) for i in rooms],
        "guest": [(i, name, countries[i - 1]) for i, name in zip(guests, draw.people(len(guests), 56), strict=True)],
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
CROPS = words(
    "Wheat Barley Oats Rye Maize Apple Pear Plum Cherry Grape Potato Carrot Onion Leek Beet Bean Pea Lentil Clover "
    "Hops Flax Melon Squash Spinach"
)


def farm(population: int) -> Rows:
    draw = Draw("farm", population)
    farms = draw.ids(20, 22)
    workers = draw.ids(56, 70)
    crops = draw.ids(20, 22)
    harvests = draw.size(150, 190)
    regions = draw.spread(len(farms), draw.kinds(["North", "South", "East", "West"], ["Coast", "Delta", "Highland"]))
    kinds = draw.spread(len(crops), draw.kinds(["Grain", "Fruit", "Vegetable"], ["Fodder", "Fiber", "Herb"]))
    acres = draw.distinct(len(farms), 20, 600, 10)
    wages = draw.distinct(len(workers), 1200, 3600, 20)
    prices = draw.distinct(len(crops), 40, 400, 5)
    employer = draw.parents(len(workers), farms, cover=False)
    grown = zip(draw.parents(harvests, farms, cover=False), draw.parents(harvests, crops, cover=False), strict=True)
    return {
        "farm": [
            (i, name, regions[i - 1], size)
            for i, name, size in zip(farms, draw.some(FARMS, len(farms)), acres, strict=True)
        ],
        "worker": [
            (i, name, employer[i - 1], wages[i - 1])
            for i, name in zip(workers, draw.people(len(workers), 76), strict=True)
        ],
        "crop": [
            (i, name, kinds[i - 1], price)
            for i, name, price in zip(crops, draw.some(CROPS, len(crops)), prices, strict=True)
        ],
        "harvest": [(i, site, crop, draw.one(YEARS), draw.between(2, 90)) for i, (site, crop) in enumerate(grown, 1)],
    }


MUSIC = """\
CREATE TABLE band (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, country TEXT NOT NULL, founded INTEGER NOT NULL);
CREATE TABLE album (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, band_id INTEGER NOT NULL REFERENCES band(id),
    year INTEGER NOT NULL, copies INTEGER NOT NULL);
CREATE TABLE song (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, album_id INTEGER NOT NULL REFERENCES album(id),
    seconds INTEGER NOT NULL);
CREATE TABLE concert (id INTEGER PRIMARY KEY, band_id INTEGER NOT NULL REFERENCES band(id), city TEXT NOT NULL,
    year INTEGER NOT NULL, fans INTEGER NOT NULL);
"""

BANDS = words(
    "Amberline Blackbirds Cicada Driftwood Echoes Foxglove Greyhound Halogen Ivory Junebug Kestrel Lowlands Magnolia "
    "Nightjar Outpost Pinewood Quicksand Redwing Sparrows Tidewater Undertow Velvet Wildfire Yonder"
)


def music(population: int) -> Rows:
    draw = Draw("music", population)
    bands = draw.ids(20, 22)
    albums = draw.ids(52, 64)
    songs = draw.ids(160, 190)
    concerts = draw.ids(80, 100)
    countries = draw.spread(len(bands), draw.kinds(COUNTRIES, OTHER_COUNTRIES))
    cities = draw.spread(len(concerts), draw.kinds(CITIES, OTHER_CITIES))
    made_by = draw.parents(len(albums), bands, cover=False)
    copies = draw.distinct(len(albums), 1000, 90000, 500)
    on_album = draw.parents(len(songs), albums, cover=True)
    live = draw.parents(len(concerts), bands, cover=False)
    fans = draw.distinct(len(concerts), 200, 20000, 100)
    return {
        "band": [
            (i, name, countries[i - 1], draw.between(1970, 2012))
            for i, name in zip(bands, draw.some(BANDS, len(bands)), strict=True)
        ],
        "album": [
            (i, title, made_by[i - 1], draw.one(YEARS), copies[i - 1])
            for i, title in zip(albums, draw.some(TITLES[:70], len(albums)), strict=True)
        ],
        "song": [
            (i, title, on_album[i - 1], draw.between(90, 420))
            for i, title in zip(songs, draw.some(TITLES, len(songs)), strict=True)
        ],
        "concert": [(i, live[i - 1], cities[i - 1], draw.one(YEARS), fans[i - 1]) for i in concerts],
    }
