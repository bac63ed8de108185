"""Seed questions, written by hand: what the policy is warmed up on and the explorer may build upon."""

QUESTIONS = {
    "library": """
What are the titles of the Fantasy books?
    SELECT title FROM book WHERE genre = 'Fantasy'
How many members live in Oslo?
    SELECT COUNT(*) FROM member WHERE city = 'Oslo'
List the titles of all books with more than 500 pages.
    SELECT title FROM book WHERE pages > 500
What is the average age of the members?
    SELECT AVG(age) FROM member
Which book has the most pages? Give its title.
    SELECT title FROM book ORDER BY pages DESC LIMIT 1
Show each genre with its number of books.
    SELECT genre, COUNT(*) FROM book GROUP BY genre
How many loans were made in 2022?
    SELECT COUNT(*) FROM loan WHERE year = 2022
Give the titles of books written by authors from Japan.
    SELECT book.title FROM book JOIN author ON author.id = book.author_id WHERE author.country = 'Japan'
How many loans were made by members who live in Lyon?
    SELECT COUNT(*) FROM loan JOIN member ON member.id = loan.member_id WHERE member.city = 'Lyon'
For each author, show the name and how many books they wrote.
    SELECT author.name, COUNT(*) FROM book JOIN author ON author.id = book.author_id GROUP BY author.name
Which genres have at least 12 books?
    SELECT genre FROM book GROUP BY genre HAVING COUNT(*) >= 12
Find the titles of books that were never lent out.
    SELECT title FROM book WHERE id NOT IN (SELECT book_id FROM loan)
Which members are older than the average member? List their names.
    SELECT name FROM member WHERE age > (SELECT AVG(age) FROM member)
What are the titles of the three shortest books, starting with the shortest?
    SELECT title FROM book ORDER BY pages LIMIT 3
For how many loans is the number of days missing?
    SELECT COUNT(*) FROM loan WHERE days IS NULL
What is the longest time, in days, that a Poetry book was lent?
    SELECT MAX(loan.days) FROM loan JOIN book ON book.id = loan.book_id WHERE book.genre = 'Poetry'
How old are the members from Oslo on average?
    SELECT AVG(age) FROM member WHERE city = 'Oslo'
Show title and pages of the Crime books.
    SELECT title, pages FROM book WHERE genre = 'Crime'
""",
    "clinic": """
List the names of the doctors whose specialty is Surgery.
    SELECT name FROM doctor WHERE specialty = 'Surgery'
How many patients are older than 70?
    SELECT COUNT(*) FROM patient WHERE age > 70
Show the name and price of every drug.
    SELECT name, price FROM drug
What did all visits of 2023 cost in total?
    SELECT SUM(cost) FROM visit WHERE year = 2023
Which drug is the cheapest? Give the name.
    SELECT name FROM drug ORDER BY price LIMIT 1
For each city, how many patients live there?
    SELECT city, COUNT(*) FROM patient GROUP BY city
Give the names of patients from Turin who are younger than 30.
    SELECT name FROM patient WHERE city = 'Turin' AND age < 30
What is the average cost of a visit, per year? Show year and average.
    SELECT year, AVG(cost) FROM visit GROUP BY year
How many visits did doctors in Cardiology have?
    SELECT COUNT(*) FROM visit JOIN doctor ON doctor.id = visit.doctor_id WHERE doctor.specialty = 'Cardiology'
Show the cost of every visit by patients from Ghent.
    SELECT visit.cost FROM visit JOIN patient ON patient.id = visit.patient_id WHERE patient.city = 'Ghent'
Show each doctor's name with the total cost of their visits.
    SELECT doctor.name, SUM(visit.cost) FROM visit JOIN doctor ON doctor.id = visit.doctor_id GROUP BY doctor.name
Which patients never had a visit? Give their names.
    SELECT name FROM patient WHERE id NOT IN (SELECT patient_id FROM visit)
What is the age of the patient with the most expensive visit?
    SELECT patient.age FROM visit JOIN patient ON patient.id = visit.patient_id ORDER BY visit.cost DESC LIMIT 1
Which cities have more than 10 patients?
    SELECT city FROM patient GROUP BY city HAVING COUNT(*) > 10
Name the drugs that cost more than the average drug.
    SELECT name FROM drug WHERE price > (SELECT AVG(price) FROM drug)
How many days of Nexol were prescribed altogether?
    SELECT SUM(prescription.days) FROM prescription JOIN drug ON drug.id = prescription.drug_id
    WHERE drug.name = 'Nexol'
Which patients are under 10 years old? Give the names.
    SELECT name FROM patient WHERE age < 10
Show the year and the cost of each visit to doctor Leo Quinn.
    SELECT visit.year, visit.cost FROM visit JOIN doctor ON doctor.id = visit.doctor_id
    WHERE doctor.name = 'Leo Quinn'
""",
    "shop": """
Which products are in the Toys category? Give their names.
    SELECT name FROM product WHERE category = 'Toys'
How many purchases were made in 2021?
    SELECT COUNT(*) FROM purchase WHERE year = 2021
What is the price of the Hammer?
    SELECT price FROM product WHERE name = 'Hammer'
Give the name and price of all products that cost less than 100.
    SELECT name, price FROM product WHERE price < 100
What is the highest price of any Kitchen product?
    SELECT MAX(price) FROM product WHERE category = 'Kitchen'
List the five most expensive products by name, most expensive first.
    SELECT name FROM product ORDER BY price DESC LIMIT 5
What is the average product price in each category? Show category and average.
    SELECT category, AVG(price) FROM product GROUP BY category
From which cities do customers older than 70 come? List each city once.
    SELECT DISTINCT city FROM customer WHERE age > 70
Which customers bought something in 2019? Give each name once.
    SELECT DISTINCT customer.name FROM purchase JOIN customer ON customer.id = purchase.customer_id
    WHERE purchase.year = 2019
How many units of the Lamp were sold in total?
    SELECT SUM(item.quantity) FROM item JOIN product ON product.id = item.product_id WHERE product.name = 'Lamp'
For every category, show how many units were sold.
    SELECT product.category, SUM(item.quantity) FROM item JOIN product ON product.id = item.product_id
    GROUP BY product.category
Which products have never been bought? List the names.
    SELECT name FROM product WHERE id NOT IN (SELECT product_id FROM item)
Count the purchases by customers from Oslo.
    SELECT COUNT(*) FROM purchase JOIN customer ON customer.id = purchase.customer_id WHERE customer.city = 'Oslo'
Show the names of customers with more than 5 purchases.
    SELECT customer.name FROM purchase JOIN customer ON customer.id = purchase.customer_id
    GROUP BY customer.name HAVING COUNT(*) > 5
Show the names of all customers together with how many purchases each made, including those with none.
    SELECT customer.name, COUNT(purchase.id) FROM customer LEFT JOIN purchase ON purchase.customer_id = customer.id
    GROUP BY customer.name
How much money was spent in 2020, counting price times quantity?
    SELECT SUM(product.price * item.quantity) FROM item JOIN product ON product.id = item.product_id
    JOIN purchase ON purchase.id = item.purchase_id WHERE purchase.year = 2020
Show the name and age of the customers from Turin.
    SELECT name, age FROM customer WHERE city = 'Turin'
How many customers are between 30 and 40 years old, both included?
    SELECT COUNT(*) FROM customer WHERE age BETWEEN 30 AND 40
""",
    "school": """
Which courses are worth 4 credits? List the titles.
    SELECT title FROM course WHERE credits = 4
How many students come from Turin?
    SELECT COUNT(*) FROM student WHERE city = 'Turin'
Show the name and age of the students who are at most 18 years old.
    SELECT name, age FROM student WHERE age <= 18
What is the lowest salary among the teachers?
    SELECT MIN(salary) FROM teacher
Who earns the most among the Physics teachers? Give the name.
    SELECT name FROM teacher WHERE subject = 'Physics' ORDER BY salary DESC LIMIT 1
How many teachers are there for each subject?
    SELECT subject, COUNT(*) FROM teacher GROUP BY subject
List all student names in alphabetical order.
    SELECT name FROM student ORDER BY name
What are the titles of the courses given by Art teachers?
    SELECT course.title FROM course JOIN teacher ON teacher.id = course.teacher_id WHERE teacher.subject = 'Art'
What is the average score in Basic Rhetoric?
    SELECT AVG(grade.score) FROM grade JOIN course ON course.id = grade.course_id WHERE course.title = 'Basic Rhetoric'
Show the title and the average score of each course that has grades.
    SELECT course.title, AVG(grade.score) FROM grade JOIN course ON course.id = grade.course_id GROUP BY course.title
Which teachers give no course? Show their names.
    SELECT name FROM teacher WHERE id NOT IN (SELECT teacher_id FROM course)
Name the students who scored above 95, each only once.
    SELECT DISTINCT student.name FROM grade JOIN student ON student.id = grade.student_id WHERE grade.score > 95
How many grades have no score yet?
    SELECT COUNT(*) FROM grade WHERE score IS NULL
Show the cities that have at least 9 students, together with the number.
    SELECT city, COUNT(*) FROM student GROUP BY city HAVING COUNT(*) >= 9
Which teachers earn less than the average salary? List names and salaries.
    SELECT name, salary FROM teacher WHERE salary < (SELECT AVG(salary) FROM teacher)
For every grade of a student from Oslo, show the student's name, the course title and the score.
    SELECT student.name, course.title, grade.score FROM grade JOIN student ON student.id = grade.student_id
    JOIN course ON course.id = grade.course_id WHERE student.city = 'Oslo'
What is the average age of the students from Ghent?
    SELECT AVG(age) FROM student WHERE city = 'Ghent'
List the Biology teachers with name and salary.
    SELECT name, salary FROM teacher WHERE subject = 'Biology'
""",
    "league": """
Which teams are based in Lyon? Give their names.
    SELECT name FROM team WHERE city = 'Lyon'
How many players are younger than 20?
    SELECT COUNT(*) FROM player WHERE age < 20
List the names of all players who play as Keeper.
    SELECT name FROM player WHERE position = 'Keeper'
What is the total budget of the teams from Oslo?
    SELECT SUM(budget) FROM team WHERE city = 'Oslo'
What was the largest number of fans at a game in 2021?
    SELECT MAX(fans) FROM game WHERE year = 2021
How many games were played each year?
    SELECT year, COUNT(*) FROM game GROUP BY year
What is the average age per position?
    SELECT position, AVG(age) FROM player GROUP BY position
How many goals fell before minute 10?
    SELECT COUNT(*) FROM goal WHERE minute < 10
Give the names of the players of the Titans.
    SELECT player.name FROM player JOIN team ON team.id = player.team_id WHERE team.name = 'Titans'
How many Forwards play for teams from Ghent?
    SELECT COUNT(*) FROM player JOIN team ON team.id = player.team_id
    WHERE player.position = 'Forward' AND team.city = 'Ghent'
Show each team's name and its number of players.
    SELECT team.name, COUNT(*) FROM player JOIN team ON team.id = player.team_id GROUP BY team.name
How many goals did Defenders score?
    SELECT COUNT(*) FROM goal JOIN player ON player.id = goal.player_id WHERE player.position = 'Defender'
Name the players who never scored a goal.
    SELECT name FROM player WHERE id NOT IN (SELECT player_id FROM goal)
Which team has the second highest budget? Give its name.
    SELECT name FROM team ORDER BY budget DESC LIMIT 1 OFFSET 1
List the names and budgets of the three richest teams, richest first.
    SELECT name, budget FROM team ORDER BY budget DESC LIMIT 3
How many home games did each team play in 2022? Show the team name and the count, only for teams with such games.
    SELECT team.name, COUNT(*) FROM game JOIN team ON team.id = game.home_id WHERE game.year = 2022
    GROUP BY team.name
How many fans came to all games together?
    SELECT SUM(fans) FROM game
Give name and position of the players of the Rangers.
    SELECT player.name, player.position FROM player JOIN team ON team.id = player.team_id WHERE team.name = 'Rangers'
""",
    "company": """
Which departments are located in Ghent? List the names.
    SELECT name FROM dept WHERE city = 'Ghent'
How many employees earn more than 60000?
    SELECT COUNT(*) FROM employee WHERE salary > 60000
What is the budget of the project Phoenix?
    SELECT budget FROM project WHERE title = 'Phoenix'
List the titles of the projects of 2020.
    SELECT title FROM project WHERE year = 2020
What is the average salary?
    SELECT AVG(salary) FROM employee
Which project has the smallest budget? Give title and budget.
    SELECT title, budget FROM project ORDER BY budget LIMIT 1
What is the total project budget for each year?
    SELECT year, SUM(budget) FROM project GROUP BY year
Who works in the Finance department? Give the names.
    SELECT employee.name FROM employee JOIN dept ON dept.id = employee.dept_id WHERE dept.name = 'Finance'
What is the highest salary in the Legal department?
    SELECT MAX(employee.salary) FROM employee JOIN dept ON dept.id = employee.dept_id WHERE dept.name = 'Legal'
Show each department name with the average salary of its employees.
    SELECT dept.name, AVG(employee.salary) FROM employee JOIN dept ON dept.id = employee.dept_id GROUP BY dept.name
How many hours in total were worked on the project Horizon?
    SELECT SUM(work.hours) FROM work JOIN project ON project.id = work.project_id WHERE project.title = 'Horizon'
List the names of employees without a boss.
    SELECT name FROM employee WHERE boss_id IS NULL
Which employees do not work on any project? Give the names.
    SELECT name FROM employee WHERE id NOT IN (SELECT employee_id FROM work)
Which department has the most employees? Give its name; if several are level, take the first in the alphabet.
    SELECT dept.name FROM employee JOIN dept ON dept.id = employee.dept_id
    GROUP BY dept.name ORDER BY COUNT(*) DESC, dept.name LIMIT 1
Show the names of the employees who earn more than their boss.
    SELECT employee.name FROM employee JOIN employee AS boss ON boss.id = employee.boss_id
    WHERE employee.salary > boss.salary
Give the titles of projects that someone from the Design department works on, without repeats.
    SELECT DISTINCT project.title FROM work JOIN project ON project.id = work.project_id
    JOIN employee ON employee.id = work.employee_id JOIN dept ON dept.id = employee.dept_id
    WHERE dept.name = 'Design'
Which employees earn under 22000? Show the names.
    SELECT name FROM employee WHERE salary < 22000
What was the average budget of the projects in 2019?
    SELECT AVG(budget) FROM project WHERE year = 2019
""",
}
