"""The test suite, written by hand: reported at the end, never used to choose a checkpoint or to stop."""

QUESTIONS = {
    "library": """
From which country does the author Tara Moss come?
    SELECT country FROM author WHERE name = 'Tara Moss'
What is the number of members from Turin?
    SELECT COUNT(*) FROM member WHERE city = 'Turin'
Name the members who are not yet 18.
    SELECT name FROM member WHERE age < 18
What is the average number of days of the loans made in 2020?
    SELECT AVG(days) FROM loan WHERE year = 2020
Which History book has the fewest pages? I need the title.
    SELECT title FROM book WHERE genre = 'History' ORDER BY pages LIMIT 1
How many loans were made in each year?
    SELECT year, COUNT(*) FROM loan GROUP BY year
How many books were written by authors from France?
    SELECT COUNT(*) FROM book JOIN author ON author.id = book.author_id WHERE author.country = 'France'
List every Science book with its author: title first, then the author's name.
    SELECT book.title, author.name FROM book JOIN author ON author.id = book.author_id WHERE book.genre = 'Science'
How many different books have been lent out?
    SELECT COUNT(DISTINCT book_id) FROM loan
How many pages does the longest Crime book have?
    SELECT MAX(pages) FROM book WHERE genre = 'Crime'
Who among the members lives in Lisbon or Oslo? Names only.
    SELECT name FROM member WHERE city IN ('Lisbon', 'Oslo')
Show the title and page count of the books with 200 to 300 pages.
    SELECT title, pages FROM book WHERE pages BETWEEN 200 AND 300
Which book titles contain the word Garden?
    SELECT title FROM book WHERE title LIKE '%Garden%'
Show the genres with their average number of pages, the highest average first.
    SELECT genre, AVG(pages) FROM book GROUP BY genre ORDER BY AVG(pages) DESC
Which member has borrowed most often? Give the name; in a tie, the one that comes first alphabetically.
    SELECT member.name FROM loan JOIN member ON member.id = loan.member_id
    GROUP BY member.name ORDER BY COUNT(*) DESC, member.name LIMIT 1
Which authors have not written any Poetry book? List their names.
    SELECT name FROM author WHERE id NOT IN (SELECT author_id FROM book WHERE genre = 'Poetry')
For members with more than 6 loans, show the name and the total number of days.
    SELECT member.name, SUM(loan.days) FROM loan JOIN member ON member.id = loan.member_id
    GROUP BY member.name HAVING COUNT(*) > 6
Which books were lent in 2019 but not in 2020? Give the titles.
    SELECT title FROM book WHERE id IN (SELECT book_id FROM loan WHERE year = 2019)
    AND id NOT IN (SELECT book_id FROM loan WHERE year = 2020)
How many members have never borrowed anything?
    SELECT COUNT(*) FROM member WHERE id NOT IN (SELECT member_id FROM loan)
What is the average age of the members who have borrowed a Crime book? Count each member once.
    SELECT AVG(age) FROM member WHERE id IN (SELECT loan.member_id FROM loan JOIN book ON book.id = loan.book_id
    WHERE book.genre = 'Crime')
Who wrote the longest book? Show the author's name and the title.
    SELECT author.name, book.title FROM book JOIN author ON author.id = book.author_id
    ORDER BY book.pages DESC LIMIT 1
How often were books lent, by the country of the author? Show country and number of loans.
    SELECT author.country, COUNT(*) FROM loan JOIN book ON book.id = loan.book_id
    JOIN author ON author.id = book.author_id GROUP BY author.country
What percentage of the loans have no number of days?
    SELECT 100.0 * SUM(CASE WHEN days IS NULL THEN 1 ELSE 0 END) / COUNT(*) FROM loan
How many authors wrote more than 4 books?
    SELECT COUNT(*) FROM (SELECT author_id FROM book GROUP BY author_id HAVING COUNT(*) > 4)
What is the age of the oldest member in each city? Show city and age.
    SELECT city, MAX(age) FROM member GROUP BY city
""",
    "clinic": """
How old is the patient Dan Moss?
    SELECT age FROM patient WHERE name = 'Dan Moss'
How many doctors have the specialty Pediatrics?
    SELECT COUNT(*) FROM doctor WHERE specialty = 'Pediatrics'
Which patients live in Lyon? Give me their names.
    SELECT name FROM patient WHERE city = 'Lyon'
Name all the drugs with a price over 92.
    SELECT name FROM drug WHERE price > 92
Find the lowest cost of a visit in 2021.
    SELECT MIN(cost) FROM visit WHERE year = 2021
How many doctors are there per specialty?
    SELECT specialty, COUNT(*) FROM doctor GROUP BY specialty
What is the average price of a drug?
    SELECT AVG(price) FROM drug
Give the name of the second most expensive drug.
    SELECT name FROM drug ORDER BY price DESC LIMIT 1 OFFSET 1
Show the name and age of all patients from Lisbon.
    SELECT name, age FROM patient WHERE city = 'Lisbon'
How many visits cost between 500 and 1000?
    SELECT COUNT(*) FROM visit WHERE cost BETWEEN 500 AND 1000
How many visits did patients from Oslo have?
    SELECT COUNT(*) FROM visit JOIN patient ON patient.id = visit.patient_id WHERE patient.city = 'Oslo'
What is the most expensive visit with a Surgery doctor? Give the cost.
    SELECT MAX(visit.cost) FROM visit JOIN doctor ON doctor.id = visit.doctor_id WHERE doctor.specialty = 'Surgery'
For every drug that was prescribed, show its name and the total days of prescription.
    SELECT drug.name, SUM(prescription.days) FROM prescription JOIN drug ON drug.id = prescription.drug_id
    GROUP BY drug.name
How many different patients had a visit in 2024?
    SELECT COUNT(DISTINCT patient_id) FROM visit WHERE year = 2024
For which doctors did all visits together cost more than 10000? List the doctors' names.
    SELECT doctor.name FROM visit JOIN doctor ON doctor.id = visit.doctor_id
    GROUP BY doctor.name HAVING SUM(visit.cost) > 10000
Show doctor name, patient name and cost for each visit of 2020.
    SELECT doctor.name, patient.name, visit.cost FROM visit JOIN doctor ON doctor.id = visit.doctor_id
    JOIN patient ON patient.id = visit.patient_id WHERE visit.year = 2020
Which drugs were never prescribed? Return name and price.
    SELECT name, price FROM drug WHERE id NOT IN (SELECT drug_id FROM prescription)
List every name that belongs to both a doctor and a patient.
    SELECT name FROM doctor INTERSECT SELECT name FROM patient
How old is the oldest patient who has visited a Cardiology doctor?
    SELECT MAX(patient.age) FROM visit JOIN patient ON patient.id = visit.patient_id
    JOIN doctor ON doctor.id = visit.doctor_id WHERE doctor.specialty = 'Cardiology'
What is the total cost of the visits per city of the patient, the largest total first? Show city and total.
    SELECT patient.city, SUM(visit.cost) FROM visit JOIN patient ON patient.id = visit.patient_id
    GROUP BY patient.city ORDER BY SUM(visit.cost) DESC
Which visits of 2019 cost more than the average visit of that same year? Show the ids.
    SELECT id FROM visit WHERE year = 2019 AND cost > (SELECT AVG(cost) FROM visit WHERE year = 2019)
Which drugs has doctor Vera Grant prescribed? List each drug name once.
    SELECT DISTINCT drug.name FROM prescription JOIN drug ON drug.id = prescription.drug_id
    JOIN visit ON visit.id = prescription.visit_id JOIN doctor ON doctor.id = visit.doctor_id
    WHERE doctor.name = 'Vera Grant'
How many patients had exactly one visit?
    SELECT COUNT(*) FROM (SELECT patient_id FROM visit GROUP BY patient_id HAVING COUNT(*) = 1)
What is the difference between the highest and the lowest drug price?
    SELECT MAX(price) - MIN(price) FROM drug
Which patients from Turin are older than the average patient? Names, please.
    SELECT name FROM patient WHERE city = 'Turin' AND age > (SELECT AVG(age) FROM patient)
""",
    "shop": """
How old is the customer Kira Grant?
    SELECT age FROM customer WHERE name = 'Kira Grant'
Count the products in the Sport category.
    SELECT COUNT(*) FROM product WHERE category = 'Sport'
Give the names of the customers who are older than 70.
    SELECT name FROM customer WHERE age > 70
Which products belong to Kitchen? Show name and price.
    SELECT name, price FROM product WHERE category = 'Kitchen'
How many customers does each city have?
    SELECT city, COUNT(*) FROM customer GROUP BY city
What is the mean age of the customers from Turin?
    SELECT AVG(age) FROM customer WHERE city = 'Turin'
Find the most expensive Furniture product and give its name.
    SELECT name FROM product WHERE category = 'Furniture' ORDER BY price DESC LIMIT 1
How many purchases were made after 2022?
    SELECT COUNT(*) FROM purchase WHERE year > 2022
What is the cheapest price in each category? Show category and price.
    SELECT category, MIN(price) FROM product GROUP BY category
How many units were sold altogether?
    SELECT SUM(quantity) FROM item
How many items of the Desk were sold? Count the item rows.
    SELECT COUNT(*) FROM item JOIN product ON product.id = item.product_id WHERE product.name = 'Desk'
Who made a purchase in 2023? List each customer's name once.
    SELECT DISTINCT customer.name FROM purchase JOIN customer ON customer.id = purchase.customer_id
    WHERE purchase.year = 2023
How many different customers have bought something?
    SELECT COUNT(DISTINCT customer_id) FROM purchase
Show each city with the number of purchases made by its customers.
    SELECT customer.city, COUNT(*) FROM purchase JOIN customer ON customer.id = purchase.customer_id
    GROUP BY customer.city
Which products were sold in more than 8 items? Give the name and the number of item rows.
    SELECT product.name, COUNT(*) FROM item JOIN product ON product.id = item.product_id
    GROUP BY product.name HAVING COUNT(*) > 8
How many customers never made a purchase?
    SELECT COUNT(*) FROM customer WHERE id NOT IN (SELECT customer_id FROM purchase)
What did customers from Lyon spend in total, price times quantity?
    SELECT SUM(product.price * item.quantity) FROM item JOIN product ON product.id = item.product_id
    JOIN purchase ON purchase.id = item.purchase_id JOIN customer ON customer.id = purchase.customer_id
    WHERE customer.city = 'Lyon'
Show the three customers with the most purchases, the busiest first, ties in alphabetical order. Name and number.
    SELECT customer.name, COUNT(*) FROM purchase JOIN customer ON customer.id = purchase.customer_id
    GROUP BY customer.name ORDER BY COUNT(*) DESC, customer.name LIMIT 3
List the names of products that are dearer than the average of their category.
    SELECT name FROM product WHERE price > (SELECT AVG(other.price) FROM product AS other
    WHERE other.category = product.category)
Show every product name with the number of units sold, 0 for those never sold.
    SELECT product.name, COALESCE(SUM(item.quantity), 0) FROM product
    LEFT JOIN item ON item.product_id = product.id GROUP BY product.name
Which cities have customers with an average age over 50? Show the city.
    SELECT city FROM customer GROUP BY city HAVING AVG(age) > 50
In which years was a Robot sold? Every year just once.
    SELECT DISTINCT purchase.year FROM item JOIN purchase ON purchase.id = item.purchase_id
    JOIN product ON product.id = item.product_id WHERE product.name = 'Robot'
Which customers from Oslo bought nothing in 2021? Give their names.
    SELECT name FROM customer WHERE city = 'Oslo' AND id NOT IN
    (SELECT customer_id FROM purchase WHERE year = 2021)
How many products cost less than half of the highest price?
    SELECT COUNT(*) FROM product WHERE price < (SELECT MAX(price) FROM product) / 2.0
Show the total number of units per purchase year for Toys, in order of the year.
    SELECT purchase.year, SUM(item.quantity) FROM item JOIN purchase ON purchase.id = item.purchase_id
    JOIN product ON product.id = item.product_id WHERE product.category = 'Toys'
    GROUP BY purchase.year ORDER BY purchase.year
""",
    "school": """
Which subject does Iris Kim teach?
    SELECT subject FROM teacher WHERE name = 'Iris Kim'
How many teachers teach Physics?
    SELECT COUNT(*) FROM teacher WHERE subject = 'Physics'
List the titles of courses with more than 4 credits.
    SELECT title FROM course WHERE credits > 4
Give the name and age of the students from Lisbon.
    SELECT name, age FROM student WHERE city = 'Lisbon'
What is the highest salary of a Math teacher?
    SELECT MAX(salary) FROM teacher WHERE subject = 'Math'
How many courses are there for each number of credits? Show the credits and the count.
    SELECT credits, COUNT(*) FROM course GROUP BY credits
What is the average age of all students?
    SELECT AVG(age) FROM student
Name the three best paid teachers, beginning with the best paid.
    SELECT name FROM teacher ORDER BY salary DESC LIMIT 3
Which students from Oslo are older than 25? Give the names.
    SELECT name FROM student WHERE city = 'Oslo' AND age > 25
How many scores are below 40?
    SELECT COUNT(*) FROM grade WHERE score < 40
How many students take the course Advanced Drawing?
    SELECT COUNT(*) FROM grade JOIN course ON course.id = grade.course_id WHERE course.title = 'Advanced Drawing'
List title and credits of the courses taught by Math teachers.
    SELECT course.title, course.credits FROM course JOIN teacher ON teacher.id = course.teacher_id
    WHERE teacher.subject = 'Math'
What is the best score of Ben Quinn?
    SELECT MAX(grade.score) FROM grade JOIN student ON student.id = grade.student_id
    WHERE student.name = 'Ben Quinn'
How many different students scored more than 90?
    SELECT COUNT(DISTINCT student_id) FROM grade WHERE score > 90
Show each student's name with the number of courses taken.
    SELECT student.name, COUNT(*) FROM grade JOIN student ON student.id = grade.student_id GROUP BY student.name
Which teachers give 3 or more courses? Show name and number of courses.
    SELECT teacher.name, COUNT(*) FROM course JOIN teacher ON teacher.id = course.teacher_id
    GROUP BY teacher.name HAVING COUNT(*) >= 3
For each city, show the average score of its students.
    SELECT student.city, AVG(grade.score) FROM grade JOIN student ON student.id = grade.student_id
    GROUP BY student.city
Which course has the lowest average score? Give its title, leaving out courses without scores.
    SELECT course.title FROM grade JOIN course ON course.id = grade.course_id WHERE grade.score IS NOT NULL
    GROUP BY course.title ORDER BY AVG(grade.score) LIMIT 1
Show the names of all teachers with the number of courses each gives, including teachers without courses.
    SELECT teacher.name, COUNT(course.id) FROM teacher LEFT JOIN course ON course.teacher_id = teacher.id
    GROUP BY teacher.name
What are the names of the students who were taught by Tara Moss? List each once.
    SELECT DISTINCT student.name FROM grade JOIN student ON student.id = grade.student_id
    JOIN course ON course.id = grade.course_id JOIN teacher ON teacher.id = course.teacher_id
    WHERE teacher.name = 'Tara Moss'
How many teachers earn more than the average of the Art teachers?
    SELECT COUNT(*) FROM teacher WHERE salary > (SELECT AVG(salary) FROM teacher WHERE subject = 'Art')
What share of the grades with a score are 50 or better, in percent?
    SELECT 100.0 * SUM(CASE WHEN score >= 50 THEN 1 ELSE 0 END) / COUNT(score) FROM grade
List the students who have a course without a score yet: student name and course title.
    SELECT student.name, course.title FROM grade JOIN student ON student.id = grade.student_id
    JOIN course ON course.id = grade.course_id WHERE grade.score IS NULL
Which courses are taken only by students older than 17? Give the titles of courses that have students.
    SELECT course.title FROM grade JOIN course ON course.id = grade.course_id
    JOIN student ON student.id = grade.student_id GROUP BY course.title HAVING MIN(student.age) > 17
Show each student's name and the total credits of their courses, largest total first and equal totals by name.
    SELECT student.name, SUM(course.credits) FROM grade JOIN student ON student.id = grade.student_id
    JOIN course ON course.id = grade.course_id GROUP BY student.name ORDER BY SUM(course.credits) DESC, student.name
""",
    "league": """
Where are the Giants based? Give the city.
    SELECT city FROM team WHERE name = 'Giants'
How many players play as Defender?
    SELECT COUNT(*) FROM player WHERE position = 'Defender'
Name the teams whose budget is below 250.
    SELECT name FROM team WHERE budget < 250
Show the name and the position of all players older than 37.
    SELECT name, position FROM player WHERE age > 37
How many teams are there in each city?
    SELECT city, COUNT(*) FROM team GROUP BY city
What is the average age of the Forwards?
    SELECT AVG(age) FROM player WHERE position = 'Forward'
What was the highest attendance at any game, in fans?
    SELECT MAX(fans) FROM game
How many games were played in 2024?
    SELECT COUNT(*) FROM game WHERE year = 2024
How many fans came to the games of each year in total?
    SELECT year, SUM(fans) FROM game GROUP BY year
Which Forwards are younger than 19? List the names.
    SELECT name FROM player WHERE position = 'Forward' AND age < 19
Give the names of the teams from Lisbon or Turin.
    SELECT name FROM team WHERE city IN ('Lisbon', 'Turin')
What are the names of the players who play as Keeper for the Foxes?
    SELECT player.name FROM player JOIN team ON team.id = player.team_id
    WHERE team.name = 'Foxes' AND player.position = 'Keeper'
How many players have a team in Oslo?
    SELECT COUNT(*) FROM player JOIN team ON team.id = player.team_id WHERE team.city = 'Oslo'
How many games had at least one goal?
    SELECT COUNT(DISTINCT game_id) FROM goal
Which players scored in minute 85 or later? List each name once.
    SELECT DISTINCT player.name FROM goal JOIN player ON player.id = goal.player_id WHERE goal.minute >= 85
What is the age of the oldest player in each team? Show team name and age.
    SELECT team.name, MAX(player.age) FROM player JOIN team ON team.id = player.team_id GROUP BY team.name
How many goals did players of each position score? Show position and number.
    SELECT player.position, COUNT(*) FROM goal JOIN player ON player.id = goal.player_id GROUP BY player.position
Which player scored the most goals? Give the name; in a tie, the first in the alphabet.
    SELECT player.name FROM goal JOIN player ON player.id = goal.player_id
    GROUP BY player.name ORDER BY COUNT(*) DESC, player.name LIMIT 1
What was the average number of fans at the home games of the Stags?
    SELECT AVG(game.fans) FROM game JOIN team ON team.id = game.home_id WHERE team.name = 'Stags'
Which teams have an average player age under 26? Give the names.
    SELECT team.name FROM player JOIN team ON team.id = player.team_id
    GROUP BY team.name HAVING AVG(player.age) < 26
Name the teams that never played a home game in 2021.
    SELECT name FROM team WHERE id NOT IN (SELECT home_id FROM game WHERE year = 2021)
Which games had more than 4 goals? Show the game id and the number of goals.
    SELECT game_id, COUNT(*) FROM goal GROUP BY game_id HAVING COUNT(*) > 4
Show the name of the home team and the away team of the game with the most fans.
    SELECT home.name, away.name FROM game JOIN team AS home ON home.id = game.home_id
    JOIN team AS away ON away.id = game.away_id ORDER BY game.fans DESC LIMIT 1
How many goals were scored by the home team's own players? Count the goals whose scorer plays for the home team.
    SELECT COUNT(*) FROM goal JOIN game ON game.id = goal.game_id JOIN player ON player.id = goal.player_id
    WHERE player.team_id = game.home_id
What percentage of all goals fell in the second half, that is, after minute 45?
    SELECT 100.0 * SUM(CASE WHEN minute > 45 THEN 1 ELSE 0 END) / COUNT(*) FROM goal
""",
    "company": """
What does Kira Evans earn?
    SELECT salary FROM employee WHERE name = 'Kira Evans'
How many departments are in Oslo?
    SELECT COUNT(*) FROM dept WHERE city = 'Oslo'
Show the titles of projects with a budget over 60000.
    SELECT title FROM project WHERE budget > 60000
List the names of the employees who earn at least 85000.
    SELECT name FROM employee WHERE salary >= 85000
How many projects are there per year?
    SELECT year, COUNT(*) FROM project GROUP BY year
What is the smallest budget of a project in 2022?
    SELECT MIN(budget) FROM project WHERE year = 2022
Who are the three lowest paid employees? Show the names, the lowest paid first.
    SELECT name FROM employee ORDER BY salary LIMIT 3
How many hours were worked on projects overall?
    SELECT SUM(hours) FROM work
Which projects of 2023 have a budget under 45000? Show the titles.
    SELECT title FROM project WHERE year = 2023 AND budget < 45000
List all department names with their city in alphabetical order of the name.
    SELECT name, city FROM dept ORDER BY name
What is the average salary in the Tax department?
    SELECT AVG(employee.salary) FROM employee JOIN dept ON dept.id = employee.dept_id WHERE dept.name = 'Tax'
How many employees work in departments located in Turin?
    SELECT COUNT(*) FROM employee JOIN dept ON dept.id = employee.dept_id WHERE dept.city = 'Turin'
Show the name and salary of the people in the Sales department.
    SELECT employee.name, employee.salary FROM employee JOIN dept ON dept.id = employee.dept_id
    WHERE dept.name = 'Sales'
How many different employees work on a project?
    SELECT COUNT(DISTINCT employee_id) FROM work
Which departments have more than 5 employees? Show name and number.
    SELECT dept.name, COUNT(*) FROM employee JOIN dept ON dept.id = employee.dept_id
    GROUP BY dept.name HAVING COUNT(*) > 5
How many hours did each employee who works on projects put in altogether? Show name and hours.
    SELECT employee.name, SUM(work.hours) FROM work JOIN employee ON employee.id = work.employee_id
    GROUP BY employee.name
How many employees earn more than their boss?
    SELECT COUNT(*) FROM employee JOIN employee AS boss ON boss.id = employee.boss_id
    WHERE employee.salary > boss.salary
Name the projects that were worked on for more than 400 hours in total.
    SELECT project.title FROM work JOIN project ON project.id = work.project_id
    GROUP BY project.title HAVING SUM(work.hours) > 400
What is the boss of Iris Lund called?
    SELECT boss.name FROM employee JOIN employee AS boss ON boss.id = employee.boss_id
    WHERE employee.name = 'Iris Lund'
Who earns the most in each department? Show the department's name, the employee's name and the salary.
    SELECT dept.name, employee.name, employee.salary FROM employee JOIN dept ON dept.id = employee.dept_id
    WHERE employee.salary = (SELECT MAX(other.salary) FROM employee AS other WHERE other.dept_id = employee.dept_id)
Which employees are nobody's boss and have no project? Give their names.
    SELECT name FROM employee WHERE id NOT IN (SELECT boss_id FROM employee WHERE boss_id IS NOT NULL)
    AND id NOT IN (SELECT employee_id FROM work)
Show name and city of the departments Sales, Press and Tax.
    SELECT name, city FROM dept WHERE name IN ('Sales', 'Press', 'Tax')
How many hours were spent on each project of 2021? Show the title and the hours, only for projects someone worked on.
    SELECT project.title, SUM(work.hours) FROM work JOIN project ON project.id = work.project_id
    WHERE project.year = 2021 GROUP BY project.title
Which departments have somebody who earns over 80000? List each department's name once.
    SELECT DISTINCT dept.name FROM employee JOIN dept ON dept.id = employee.dept_id WHERE employee.salary > 80000
On average, how many hours does an employee of the Research department spend on a project assignment?
    SELECT AVG(work.hours) FROM work JOIN employee ON employee.id = work.employee_id
    JOIN dept ON dept.id = employee.dept_id WHERE dept.name = 'Research'
""",
}
