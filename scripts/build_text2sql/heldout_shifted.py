"""The shifted suite, written by hand: databases that no task is trained on. Gold up and this down is overfitting."""

QUESTIONS = {
    "hotel": """
How many stars does the Savoy have?
    SELECT stars FROM hotel WHERE name = 'Savoy'
How many hotels are there in Oslo?
    SELECT COUNT(*) FROM hotel WHERE city = 'Oslo'
List the names of the hotels with more than 3 stars.
    SELECT name FROM hotel WHERE stars > 3
Which guests come from Kenya? Give their names.
    SELECT name FROM guest WHERE country = 'Kenya'
What is the average price of a Suite?
    SELECT AVG(price) FROM room WHERE kind = 'Suite'
Show each kind of room with the number of rooms of that kind.
    SELECT kind, COUNT(*) FROM room GROUP BY kind
What is the id of the most expensive room?
    SELECT id FROM room ORDER BY price DESC LIMIT 1
How many stays were longer than 10 nights?
    SELECT COUNT(*) FROM stay WHERE nights > 10
Show the name and the stars of all hotels in Lisbon.
    SELECT name, stars FROM hotel WHERE city = 'Lisbon'
How many nights were booked in 2022 in total?
    SELECT SUM(nights) FROM stay WHERE year = 2022
How many different guests have stayed somewhere?
    SELECT COUNT(DISTINCT guest_id) FROM stay
How many guests are there from each country?
    SELECT country, COUNT(*) FROM guest GROUP BY country
What is the cheapest price of a Double room?
    SELECT MIN(price) FROM room WHERE kind = 'Double'
What are the prices of the rooms in the hotel Tivoli?
    SELECT room.price FROM room JOIN hotel ON hotel.id = room.hotel_id WHERE hotel.name = 'Tivoli'
How many rooms does the hotel Carlton have?
    SELECT COUNT(*) FROM room JOIN hotel ON hotel.id = room.hotel_id WHERE hotel.name = 'Carlton'
How many stays did guests from Japan have?
    SELECT COUNT(*) FROM stay JOIN guest ON guest.id = stay.guest_id WHERE guest.country = 'Japan'
Show the name of each hotel with the average price of its rooms.
    SELECT hotel.name, AVG(room.price) FROM room JOIN hotel ON hotel.id = room.hotel_id GROUP BY hotel.name
Which guests have never stayed anywhere? List the names.
    SELECT name FROM guest WHERE id NOT IN (SELECT guest_id FROM stay)
Which guests stayed for more than 25 nights in total? Give name and nights.
    SELECT guest.name, SUM(stay.nights) FROM stay JOIN guest ON guest.id = stay.guest_id
    GROUP BY guest.name HAVING SUM(stay.nights) > 25
Which hotels have more than 4 rooms? Names only.
    SELECT hotel.name FROM room JOIN hotel ON hotel.id = room.hotel_id GROUP BY hotel.name HAVING COUNT(*) > 4
Which hotels have a Suite that costs less than 190? List each hotel's name once.
    SELECT DISTINCT hotel.name FROM room JOIN hotel ON hotel.id = room.hotel_id
    WHERE room.kind = 'Suite' AND room.price < 190
How many rooms cost more than the average room?
    SELECT COUNT(*) FROM room WHERE price > (SELECT AVG(price) FROM room)
Which hotels have welcomed guests from France? Each name once.
    SELECT DISTINCT hotel.name FROM stay JOIN room ON room.id = stay.room_id
    JOIN hotel ON hotel.id = room.hotel_id JOIN guest ON guest.id = stay.guest_id WHERE guest.country = 'France'
How many nights were booked in each city? Show city and nights, most nights first.
    SELECT hotel.city, SUM(stay.nights) FROM stay JOIN room ON room.id = stay.room_id
    JOIN hotel ON hotel.id = room.hotel_id GROUP BY hotel.city ORDER BY SUM(stay.nights) DESC
Which hotel earned the most money, counting nights times the price of the room? Give its name.
    SELECT hotel.name FROM stay JOIN room ON room.id = stay.room_id JOIN hotel ON hotel.id = room.hotel_id
    GROUP BY hotel.name ORDER BY SUM(stay.nights * room.price) DESC LIMIT 1
How many rooms have never been stayed in?
    SELECT COUNT(*) FROM room WHERE id NOT IN (SELECT room_id FROM stay)
Which guests stayed in both 2020 and 2021? Show the names.
    SELECT name FROM guest WHERE id IN (SELECT guest_id FROM stay WHERE year = 2020)
    AND id IN (SELECT guest_id FROM stay WHERE year = 2021)
What percentage of all stays lasted only one night?
    SELECT 100.0 * SUM(CASE WHEN nights = 1 THEN 1 ELSE 0 END) / COUNT(*) FROM stay
""",
    "farm": """
In which region is the farm Oak Hill?
    SELECT region FROM farm WHERE name = 'Oak Hill'
How many farms are in the South region?
    SELECT COUNT(*) FROM farm WHERE region = 'South'
Name the farms that are larger than 400 acres.
    SELECT name FROM farm WHERE acres > 400
What are the names of the crops of the kind Fruit?
    SELECT name FROM crop WHERE kind = 'Fruit'
What is the average price of the Grain crops?
    SELECT AVG(price) FROM crop WHERE kind = 'Grain'
How many crops are there of each kind?
    SELECT kind, COUNT(*) FROM crop GROUP BY kind
Which farm has the most acres? Give the name.
    SELECT name FROM farm ORDER BY acres DESC LIMIT 1
How many workers have a wage below 1800?
    SELECT COUNT(*) FROM worker WHERE wage < 1800
Show name and price of the crops that cost more than 240.
    SELECT name, price FROM crop WHERE price > 240
What is the total of all wages?
    SELECT SUM(wage) FROM worker
How many tons were harvested in 2021 altogether?
    SELECT SUM(tons) FROM harvest WHERE year = 2021
Show the total number of acres for each region.
    SELECT region, SUM(acres) FROM farm GROUP BY region
Who are the three best paid workers? List the names, starting with the best paid.
    SELECT name FROM worker ORDER BY wage DESC LIMIT 3
How many different crops have been harvested?
    SELECT COUNT(DISTINCT crop_id) FROM harvest
Who works on the farm Sunny Vale? Give the names of the workers.
    SELECT worker.name FROM worker JOIN farm ON farm.id = worker.farm_id WHERE farm.name = 'Sunny Vale'
How many workers work on farms in the North region?
    SELECT COUNT(*) FROM worker JOIN farm ON farm.id = worker.farm_id WHERE farm.region = 'North'
What was the largest harvest of Wheat, in tons?
    SELECT MAX(harvest.tons) FROM harvest JOIN crop ON crop.id = harvest.crop_id WHERE crop.name = 'Wheat'
Show the name of each crop that was harvested with its total tons.
    SELECT crop.name, SUM(harvest.tons) FROM harvest JOIN crop ON crop.id = harvest.crop_id GROUP BY crop.name
Which farms employ nobody? List their names.
    SELECT name FROM farm WHERE id NOT IN (SELECT farm_id FROM worker)
Which farms have more than 4 workers? Show the name and the number of workers.
    SELECT farm.name, COUNT(*) FROM worker JOIN farm ON farm.id = worker.farm_id
    GROUP BY farm.name HAVING COUNT(*) > 4
What is the average wage per region? Show region and average wage.
    SELECT farm.region, AVG(worker.wage) FROM worker JOIN farm ON farm.id = worker.farm_id GROUP BY farm.region
Which crops did the farm River Lea harvest? Each crop name once.
    SELECT DISTINCT crop.name FROM harvest JOIN crop ON crop.id = harvest.crop_id
    JOIN farm ON farm.id = harvest.farm_id WHERE farm.name = 'River Lea'
Which workers earn more than the average wage and work on a farm in the East region? Names only.
    SELECT worker.name FROM worker JOIN farm ON farm.id = worker.farm_id
    WHERE farm.region = 'East' AND worker.wage > (SELECT AVG(wage) FROM worker)
How many tons of Vegetable crops were harvested each year? Show year and tons.
    SELECT harvest.year, SUM(harvest.tons) FROM harvest JOIN crop ON crop.id = harvest.crop_id
    WHERE crop.kind = 'Vegetable' GROUP BY harvest.year
Which crop brought in the most money over all years, counting tons times price? Give its name.
    SELECT crop.name FROM harvest JOIN crop ON crop.id = harvest.crop_id
    GROUP BY crop.name ORDER BY SUM(harvest.tons * crop.price) DESC LIMIT 1
List the names of all farms with their number of workers, also farms with none, sorted by name.
    SELECT farm.name, COUNT(worker.id) FROM farm LEFT JOIN worker ON worker.farm_id = farm.id
    GROUP BY farm.name ORDER BY farm.name
Which farms are larger than the average farm of their own region? Show name and region.
    SELECT name, region FROM farm WHERE acres > (SELECT AVG(other.acres) FROM farm AS other
    WHERE other.region = farm.region)
How many farms have harvested at least 6 different crops?
    SELECT COUNT(*) FROM (SELECT farm_id FROM harvest GROUP BY farm_id HAVING COUNT(DISTINCT crop_id) >= 6)
""",
    "music": """
When was the band Kestrel founded? Give the year.
    SELECT founded FROM band WHERE name = 'Kestrel'
How many bands come from Brazil?
    SELECT COUNT(*) FROM band WHERE country = 'Brazil'
Give the names of the bands that were founded after 2000.
    SELECT name FROM band WHERE founded > 2000
What are the titles of the albums of 2021?
    SELECT title FROM album WHERE year = 2021
What is the average number of fans at concerts in Lyon?
    SELECT AVG(fans) FROM concert WHERE city = 'Lyon'
Show every city with the number of concerts there.
    SELECT city, COUNT(*) FROM concert GROUP BY city
Which album sold the most copies? Return its title.
    SELECT title FROM album ORDER BY copies DESC LIMIT 1
How many songs are shorter than 120 seconds?
    SELECT COUNT(*) FROM song WHERE seconds < 120
Show the name and founding year of the bands from Norway.
    SELECT name, founded FROM band WHERE country = 'Norway'
How long do all songs last together, in seconds?
    SELECT SUM(seconds) FROM song
What is the longest song in seconds?
    SELECT MAX(seconds) FROM song
How many copies of albums were sold per album year? Show the year and the total copies.
    SELECT year, SUM(copies) FROM album GROUP BY year
How many different bands have given a concert?
    SELECT COUNT(DISTINCT band_id) FROM concert
Which song titles begin with the word Golden?
    SELECT title FROM song WHERE title LIKE 'Golden%'
Give the titles of the albums by bands from Japan.
    SELECT album.title FROM album JOIN band ON band.id = album.band_id WHERE band.country = 'Japan'
How many concerts did the band Velvet give?
    SELECT COUNT(*) FROM concert JOIN band ON band.id = concert.band_id WHERE band.name = 'Velvet'
What are the titles and lengths in seconds of the songs on the album Gentle Harbor?
    SELECT song.title, song.seconds FROM song JOIN album ON album.id = song.album_id
    WHERE album.title = 'Gentle Harbor'
Show the name of each band that has an album, with its number of albums.
    SELECT band.name, COUNT(*) FROM album JOIN band ON band.id = album.band_id GROUP BY band.name
Which bands have not released any album? List the names.
    SELECT name FROM band WHERE id NOT IN (SELECT band_id FROM album)
Which albums have at least 5 songs? Show title and number of songs.
    SELECT album.title, COUNT(*) FROM song JOIN album ON album.id = song.album_id
    GROUP BY album.title HAVING COUNT(*) >= 5
In which cities has a band from France played? List each city once.
    SELECT DISTINCT concert.city FROM concert JOIN band ON band.id = concert.band_id WHERE band.country = 'France'
Show the title and the total length in seconds of each album, longest first and equal lengths by title.
    SELECT album.title, SUM(song.seconds) FROM song JOIN album ON album.id = song.album_id
    GROUP BY album.title ORDER BY SUM(song.seconds) DESC, album.title
What is the average length of the songs by Magnolia, in seconds?
    SELECT AVG(song.seconds) FROM song JOIN album ON album.id = song.album_id
    JOIN band ON band.id = album.band_id WHERE band.name = 'Magnolia'
Which band attracted the most fans over all its concerts? Show its name and the number of fans.
    SELECT band.name, SUM(concert.fans) FROM concert JOIN band ON band.id = concert.band_id
    GROUP BY band.name ORDER BY SUM(concert.fans) DESC LIMIT 1
Which albums sold more copies than the average album of the same year? Titles, please.
    SELECT title FROM album WHERE copies > (SELECT AVG(other.copies) FROM album AS other
    WHERE other.year = album.year)
Which bands played in Oslo but never in Turin? Give their names.
    SELECT name FROM band WHERE id IN (SELECT band_id FROM concert WHERE city = 'Oslo')
    AND id NOT IN (SELECT band_id FROM concert WHERE city = 'Turin')
Which titles are used both for an album and for a song?
    SELECT title FROM album INTERSECT SELECT title FROM song
How many songs are there per country of the band? Show country and number.
    SELECT band.country, COUNT(*) FROM song JOIN album ON album.id = song.album_id
    JOIN band ON band.id = album.band_id GROUP BY band.country
Which bands gave a concert in the year in which they released an album? List each name once.
    SELECT DISTINCT band.name FROM band JOIN album ON album.band_id = band.id
    JOIN concert ON concert.band_id = band.id WHERE concert.year = album.year
""",
}
