"""The gold suite, written by hand: evaluated after every round, never shown to a policy or an explorer."""

QUESTIONS = {
    "library": """
In which city does Iris Moss live?
    SELECT city FROM member WHERE name = 'Iris Moss'
How many books belong to the History genre?
    SELECT COUNT(*) FROM book WHERE genre = 'History'
Give the titles of the books that are shorter than 150 pages.
    SELECT title FROM book WHERE pages < 150
How many pages do the Science books have on average?
    SELECT AVG(pages) FROM book WHERE genre = 'Science'
Which Poetry book is the longest? Return the title.
    SELECT title FROM book WHERE genre = 'Poetry' ORDER BY pages DESC LIMIT 1
Show every city together with the number of members living in it.
    SELECT city, COUNT(*) FROM member GROUP BY city
Who has written a Fantasy book? Give every author's name only once.
    SELECT DISTINCT author.name FROM book JOIN author ON author.id = book.author_id WHERE book.genre = 'Fantasy'
How often were Crime books lent out?
    SELECT COUNT(*) FROM loan JOIN book ON book.id = loan.book_id WHERE book.genre = 'Crime'
What is the total number of pages of all books?
    SELECT SUM(pages) FROM book
How many different members have borrowed at least one book?
    SELECT COUNT(DISTINCT member_id) FROM loan
Find the titles of History books that have more than 440 pages.
    SELECT title FROM book WHERE genre = 'History' AND pages > 440
Give the name and the city of all members over 70.
    SELECT name, city FROM member WHERE age > 70
Give the names of the members whose name begins with Kira.
    SELECT name FROM member WHERE name LIKE 'Kira%'
Which authors have written 5 or more books? Show their names.
    SELECT author.name FROM book JOIN author ON author.id = book.author_id GROUP BY author.name HAVING COUNT(*) >= 5
Which author has written the most books? Give the name; in a tie, the one that comes first alphabetically.
    SELECT author.name FROM book JOIN author ON author.id = book.author_id
    GROUP BY author.name ORDER BY COUNT(*) DESC, author.name LIMIT 1
Show the title and the number of loans of each book that was lent more than 5 times.
    SELECT book.title, COUNT(*) FROM loan JOIN book ON book.id = loan.book_id
    GROUP BY book.title HAVING COUNT(*) > 5
Which books have more pages than the average book of their own genre? List the titles.
    SELECT title FROM book WHERE pages > (SELECT AVG(other.pages) FROM book AS other WHERE other.genre = book.genre)
Name the members from Turin who have never borrowed a book.
    SELECT name FROM member WHERE city = 'Turin' AND id NOT IN (SELECT member_id FROM loan)
How many loans of 2023 lasted longer than 30 days?
    SELECT COUNT(*) FROM loan WHERE year = 2023 AND days > 30
For each genre, show the genre, the largest and the smallest number of pages.
    SELECT genre, MAX(pages), MIN(pages) FROM book GROUP BY genre
What are the titles of the books that Gina Quinn has borrowed? No repeats.
    SELECT DISTINCT book.title FROM loan JOIN book ON book.id = loan.book_id
    JOIN member ON member.id = loan.member_id WHERE member.name = 'Gina Quinn'
Which names occur both among the authors and among the members?
    SELECT name FROM author INTERSECT SELECT name FROM member
How long is an average loan, in days, for the members of each city? Show city and average.
    SELECT member.city, AVG(loan.days) FROM loan JOIN member ON member.id = loan.member_id GROUP BY member.city
By how many pages does the longest book exceed the shortest one?
    SELECT MAX(pages) - MIN(pages) FROM book
List the titles of books by authors from Norway, the longest book first.
    SELECT book.title FROM book JOIN author ON author.id = book.author_id WHERE author.country = 'Norway'
    ORDER BY book.pages DESC
""",
    "clinic": """
What is the specialty of doctor Nils Kim?
    SELECT specialty FROM doctor WHERE name = 'Nils Kim'
How many doctors practise in Lisbon?
    SELECT COUNT(*) FROM doctor WHERE city = 'Lisbon'
List the names of patients aged 80 or more.
    SELECT name FROM patient WHERE age >= 80
Which drugs cost less than 25? Show the names.
    SELECT name FROM drug WHERE price < 25
What was the most expensive visit of 2022? Just the cost.
    SELECT MAX(cost) FROM visit WHERE year = 2022
How many visits took place in each year?
    SELECT year, COUNT(*) FROM visit GROUP BY year
What is the average age of the patients from Oslo?
    SELECT AVG(age) FROM patient WHERE city = 'Oslo'
Name the two most expensive drugs, the dearest first.
    SELECT name FROM drug ORDER BY price DESC LIMIT 2
Show the name and specialty of all doctors in Turin.
    SELECT name, specialty FROM doctor WHERE city = 'Turin'
How many visits did Tara Moss have as a doctor?
    SELECT COUNT(*) FROM visit JOIN doctor ON doctor.id = visit.doctor_id WHERE doctor.name = 'Tara Moss'
What did the visits of patients from Lyon cost altogether?
    SELECT SUM(visit.cost) FROM visit JOIN patient ON patient.id = visit.patient_id WHERE patient.city = 'Lyon'
How many different drugs have been prescribed?
    SELECT COUNT(DISTINCT drug_id) FROM prescription
Count the prescriptions that run for 10 to 14 days.
    SELECT COUNT(*) FROM prescription WHERE days BETWEEN 10 AND 14
For each specialty, what is the average cost of a visit? Show specialty and average.
    SELECT doctor.specialty, AVG(visit.cost) FROM visit JOIN doctor ON doctor.id = visit.doctor_id
    GROUP BY doctor.specialty
Which doctors had more than 12 visits? Give name and number of visits.
    SELECT doctor.name, COUNT(*) FROM visit JOIN doctor ON doctor.id = visit.doctor_id
    GROUP BY doctor.name HAVING COUNT(*) > 12
Which patients saw a Neurology doctor? List each name once.
    SELECT DISTINCT patient.name FROM visit JOIN patient ON patient.id = visit.patient_id
    JOIN doctor ON doctor.id = visit.doctor_id WHERE doctor.specialty = 'Neurology'
Show the names of all drugs with the number of prescriptions of each, also the drugs that were never prescribed.
    SELECT drug.name, COUNT(prescription.drug_id) FROM drug
    LEFT JOIN prescription ON prescription.drug_id = drug.id GROUP BY drug.name
List the cost of each visit in which Solvex was prescribed.
    SELECT visit.cost FROM visit JOIN prescription ON prescription.visit_id = visit.id
    JOIN drug ON drug.id = prescription.drug_id WHERE drug.name = 'Solvex'
How many visits had no prescription?
    SELECT COUNT(*) FROM visit WHERE id NOT IN (SELECT visit_id FROM prescription)
How many visits cost more than the average visit?
    SELECT COUNT(*) FROM visit WHERE cost > (SELECT AVG(cost) FROM visit)
Which patient has spent the most on visits in total? Give the name.
    SELECT patient.name FROM visit JOIN patient ON patient.id = visit.patient_id
    GROUP BY patient.name ORDER BY SUM(visit.cost) DESC LIMIT 1
What percentage of the patients are younger than 18?
    SELECT 100.0 * SUM(CASE WHEN age < 18 THEN 1 ELSE 0 END) / COUNT(*) FROM patient
In how many visits did the doctor and the patient come from the same city?
    SELECT COUNT(*) FROM visit JOIN doctor ON doctor.id = visit.doctor_id
    JOIN patient ON patient.id = visit.patient_id WHERE doctor.city = patient.city
Which years had an average visit cost above 700?
    SELECT year FROM visit GROUP BY year HAVING AVG(cost) > 700
Show the name and age of patients from Ghent or Turin.
    SELECT name, age FROM patient WHERE city IN ('Ghent', 'Turin')
""",
    "shop": """
To which category does the Robot belong?
    SELECT category FROM product WHERE name = 'Robot'
How many customers come from Ghent?
    SELECT COUNT(*) FROM customer WHERE city = 'Ghent'
What are the names of the products that cost more than 300?
    SELECT name FROM product WHERE price > 300
Give the names of all customers from Lyon.
    SELECT name FROM customer WHERE city = 'Lyon'
How many products are there in each category?
    SELECT category, COUNT(*) FROM product GROUP BY category
What does a Furniture product cost on average?
    SELECT AVG(price) FROM product WHERE category = 'Furniture'
Which Tools product is the cheapest? Give its name.
    SELECT name FROM product WHERE category = 'Tools' ORDER BY price LIMIT 1
How many items have a quantity of at least 8?
    SELECT COUNT(*) FROM item WHERE quantity >= 8
Show the name and the city of customers younger than 25.
    SELECT name, city FROM customer WHERE age < 25
What is the sum of all product prices?
    SELECT SUM(price) FROM product
How many purchases did Iris Kim make?
    SELECT COUNT(*) FROM purchase JOIN customer ON customer.id = purchase.customer_id WHERE customer.name = 'Iris Kim'
In which years did customers older than 73 buy something? List each year once.
    SELECT DISTINCT purchase.year FROM purchase JOIN customer ON customer.id = purchase.customer_id
    WHERE customer.age > 73
In what quantity were Sport products bought on average, over all items?
    SELECT AVG(item.quantity) FROM item JOIN product ON product.id = item.product_id
    WHERE product.category = 'Sport'
For each year, how many different customers made a purchase? Show year and number.
    SELECT year, COUNT(DISTINCT customer_id) FROM purchase GROUP BY year
Which product sold the most units? Give its name; if several are level, the first in the alphabet.
    SELECT product.name FROM item JOIN product ON product.id = item.product_id
    GROUP BY product.name ORDER BY SUM(item.quantity) DESC, product.name LIMIT 1
Who has never purchased anything? Show the customers' names and cities.
    SELECT name, city FROM customer WHERE id NOT IN (SELECT customer_id FROM purchase)
Which customers have bought a Mirror? List each name once.
    SELECT DISTINCT customer.name FROM item JOIN purchase ON purchase.id = item.purchase_id
    JOIN customer ON customer.id = purchase.customer_id JOIN product ON product.id = item.product_id
    WHERE product.name = 'Mirror'
Which categories have an average price above 200? List them.
    SELECT category FROM product GROUP BY category HAVING AVG(price) > 200
How many purchases consist of more than 2 items?
    SELECT COUNT(*) FROM (SELECT purchase_id FROM item GROUP BY purchase_id HAVING COUNT(*) > 2)
For every product that was sold, show its name and the money it brought in (price times units sold).
    SELECT product.name, SUM(product.price * item.quantity) FROM item JOIN product ON product.id = item.product_id
    GROUP BY product.name
List the products that cost more than every Kitchen product. Give the names.
    SELECT name FROM product WHERE price > (SELECT MAX(price) FROM product WHERE category = 'Kitchen')
How many purchases were made each year by customers from Oslo? Show year and number.
    SELECT purchase.year, COUNT(*) FROM purchase JOIN customer ON customer.id = purchase.customer_id
    WHERE customer.city = 'Oslo' GROUP BY purchase.year
Show the names of customers who bought something in 2019 but nothing in 2020.
    SELECT name FROM customer WHERE id IN (SELECT customer_id FROM purchase WHERE year = 2019)
    AND id NOT IN (SELECT customer_id FROM purchase WHERE year = 2020)
List all products that are neither Toys nor Tools, with name and category.
    SELECT name, category FROM product WHERE category NOT IN ('Toys', 'Tools')
What did the purchase with id 10 cost in total, counting price times quantity?
    SELECT SUM(product.price * item.quantity) FROM item JOIN product ON product.id = item.product_id
    WHERE item.purchase_id = 10
""",
    "school": """
What is the salary of the teacher Tara Moss?
    SELECT salary FROM teacher WHERE name = 'Tara Moss'
Count the courses that are worth 6 credits.
    SELECT COUNT(*) FROM course WHERE credits = 6
Give the names of all students from Ghent.
    SELECT name FROM student WHERE city = 'Ghent'
Which teachers earn more than 64000? Names only.
    SELECT name FROM teacher WHERE salary > 64000
What do Biology teachers earn on average?
    SELECT AVG(salary) FROM teacher WHERE subject = 'Biology'
How many students come from each city?
    SELECT city, COUNT(*) FROM student GROUP BY city
What is the total of the credits of all courses?
    SELECT SUM(credits) FROM course
Who earns the least of all teachers? Give name and salary.
    SELECT name, salary FROM teacher ORDER BY salary LIMIT 1
Show the titles of all courses in alphabetical order.
    SELECT title FROM course ORDER BY title
How many students are between 20 and 22 years old?
    SELECT COUNT(*) FROM student WHERE age BETWEEN 20 AND 22
What is the best score in Basic Algebra?
    SELECT MAX(grade.score) FROM grade JOIN course ON course.id = grade.course_id WHERE course.title = 'Basic Algebra'
Which courses does Kira Evans teach? Show title and credits.
    SELECT course.title, course.credits FROM course JOIN teacher ON teacher.id = course.teacher_id
    WHERE teacher.name = 'Kira Evans'
What is the average score of the students from Lyon?
    SELECT AVG(grade.score) FROM grade JOIN student ON student.id = grade.student_id WHERE student.city = 'Lyon'
How many courses does each subject have? Show the teacher's subject and the number, only where there are any.
    SELECT teacher.subject, COUNT(*) FROM course JOIN teacher ON teacher.id = course.teacher_id
    GROUP BY teacher.subject
Which courses have nobody enrolled? Give the titles of courses without any grade entry.
    SELECT title FROM course WHERE id NOT IN (SELECT course_id FROM grade)
Which students have an average score above 85? List their names.
    SELECT student.name FROM grade JOIN student ON student.id = grade.student_id
    GROUP BY student.name HAVING AVG(grade.score) > 85
Who reached the highest score in Applied Statistics? If several did, give all the names.
    SELECT student.name FROM grade JOIN student ON student.id = grade.student_id
    JOIN course ON course.id = grade.course_id WHERE course.title = 'Applied Statistics' AND grade.score =
    (SELECT MAX(grade.score) FROM grade JOIN course ON course.id = grade.course_id
    WHERE course.title = 'Applied Statistics')
List the names of students who take more than 4 courses, together with the number of courses.
    SELECT student.name, COUNT(*) FROM grade JOIN student ON student.id = grade.student_id
    GROUP BY student.name HAVING COUNT(*) > 4
How many students failed at least once, that is, scored under 50?
    SELECT COUNT(DISTINCT student_id) FROM grade WHERE score < 50
For each teacher who gives courses, show the name and the total credits of those courses.
    SELECT teacher.name, SUM(course.credits) FROM course JOIN teacher ON teacher.id = course.teacher_id
    GROUP BY teacher.name
Which subjects pay at least one teacher more than 66000? List each subject once.
    SELECT DISTINCT subject FROM teacher WHERE salary > 66000
Which names are shared by a teacher and a student?
    SELECT name FROM teacher INTERSECT SELECT name FROM student
Rank the subjects by their highest salary, the highest first. Show subject and highest salary.
    SELECT subject, MAX(salary) FROM teacher GROUP BY subject ORDER BY MAX(salary) DESC
Show the names of students from Turin who took a course with 5 or more credits, without repeats.
    SELECT DISTINCT student.name FROM grade JOIN student ON student.id = grade.student_id
    JOIN course ON course.id = grade.course_id WHERE student.city = 'Turin' AND course.credits >= 5
How many courses does a teacher who gives any courses have on average?
    SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM course GROUP BY teacher_id)
""",
    "league": """
What position does Vera Grant play?
    SELECT position FROM player WHERE name = 'Vera Grant'
How many teams are based in Ghent?
    SELECT COUNT(*) FROM team WHERE city = 'Ghent'
List the names of the teams with a budget above 650.
    SELECT name FROM team WHERE budget > 650
Give the names of all players older than 36.
    SELECT name FROM player WHERE age > 36
How many players are there in each position?
    SELECT position, COUNT(*) FROM player GROUP BY position
What was the average number of fans at the games of 2023?
    SELECT AVG(fans) FROM game WHERE year = 2023
Which team has the smallest budget? Give its name.
    SELECT name FROM team ORDER BY budget LIMIT 1
What is the combined budget of all teams?
    SELECT SUM(budget) FROM team
How many Keepers are older than 30?
    SELECT COUNT(*) FROM player WHERE position = 'Keeper' AND age > 30
Show name and city of every team, sorted by name.
    SELECT name, city FROM team ORDER BY name
How many games drew more than 46000 fans?
    SELECT COUNT(*) FROM game WHERE fans > 46000
How many players does the team Knights have?
    SELECT COUNT(*) FROM player JOIN team ON team.id = player.team_id WHERE team.name = 'Knights'
Give the name and age of the players of the Comets.
    SELECT player.name, player.age FROM player JOIN team ON team.id = player.team_id WHERE team.name = 'Comets'
How many different players have scored a goal?
    SELECT COUNT(DISTINCT player_id) FROM goal
What is the average age of the players of each team? Show team name and average.
    SELECT team.name, AVG(player.age) FROM player JOIN team ON team.id = player.team_id GROUP BY team.name
Which players scored more than 3 goals? Show name and number of goals.
    SELECT player.name, COUNT(*) FROM goal JOIN player ON player.id = goal.player_id
    GROUP BY player.name HAVING COUNT(*) > 3
Show every team's name with the number of games it played at home, 0 for teams without a home game.
    SELECT team.name, COUNT(game.id) FROM team LEFT JOIN game ON game.home_id = team.id GROUP BY team.name
Count the goals that were scored in games of 2020.
    SELECT COUNT(*) FROM goal JOIN game ON game.id = goal.game_id WHERE game.year = 2020
Which teams have more than 8 players? List the names.
    SELECT team.name FROM player JOIN team ON team.id = player.team_id GROUP BY team.name HAVING COUNT(*) > 8
How many goals did the players of each team score? Show the team name and the number, leaving out teams with none.
    SELECT team.name, COUNT(*) FROM goal JOIN player ON player.id = goal.player_id
    JOIN team ON team.id = player.team_id GROUP BY team.name
For each game of 2019, show the name of the home team, the name of the away team and the number of fans.
    SELECT home.name, away.name, game.fans FROM game JOIN team AS home ON home.id = game.home_id
    JOIN team AS away ON away.id = game.away_id WHERE game.year = 2019
In how many games did both teams come from the same city?
    SELECT COUNT(*) FROM game JOIN team AS home ON home.id = game.home_id
    JOIN team AS away ON away.id = game.away_id WHERE home.city = away.city
How many games ended without any goal?
    SELECT COUNT(*) FROM game WHERE id NOT IN (SELECT game_id FROM goal)
List the players who are older than the average player in the same position. Names only.
    SELECT name FROM player WHERE age > (SELECT AVG(other.age) FROM player AS other
    WHERE other.position = player.position)
Name the teams with a budget higher than every team from Turin.
    SELECT name FROM team WHERE budget > (SELECT MAX(budget) FROM team WHERE city = 'Turin')
""",
    "company": """
In which city is the Research department?
    SELECT city FROM dept WHERE name = 'Research'
How many projects are from 2023?
    SELECT COUNT(*) FROM project WHERE year = 2023
List the names of the employees who earn less than 25000.
    SELECT name FROM employee WHERE salary < 25000
Show title and budget of the projects of 2024.
    SELECT title, budget FROM project WHERE year = 2024
How many departments does each city have?
    SELECT city, COUNT(*) FROM dept GROUP BY city
Who earns the most? Give the name of the employee.
    SELECT name FROM employee ORDER BY salary DESC LIMIT 1
What is the average budget of the projects of 2021?
    SELECT AVG(budget) FROM project WHERE year = 2021
How much do all employees earn together?
    SELECT SUM(salary) FROM employee
Give the titles of the four projects with the largest budgets, largest first.
    SELECT title FROM project ORDER BY budget DESC LIMIT 4
How many employees have no boss?
    SELECT COUNT(*) FROM employee WHERE boss_id IS NULL
How many people work in the Audit department?
    SELECT COUNT(*) FROM employee JOIN dept ON dept.id = employee.dept_id WHERE dept.name = 'Audit'
Which employees work in a department in Lyon? Give their names.
    SELECT employee.name FROM employee JOIN dept ON dept.id = employee.dept_id WHERE dept.city = 'Lyon'
How many hours has Gina Park worked on projects in total?
    SELECT SUM(work.hours) FROM work JOIN employee ON employee.id = work.employee_id WHERE employee.name = 'Gina Park'
Which projects have no one working on them? Show the titles.
    SELECT title FROM project WHERE id NOT IN (SELECT project_id FROM work)
Which departments have fewer than 3 employees? Give the names.
    SELECT dept.name FROM employee JOIN dept ON dept.id = employee.dept_id GROUP BY dept.name HAVING COUNT(*) < 3
How many employees does each project have? Show title and number, only for projects with employees.
    SELECT project.title, COUNT(*) FROM work JOIN project ON project.id = work.project_id GROUP BY project.title
Show the name of each employee who has a boss, with the name of the boss.
    SELECT employee.name, boss.name FROM employee JOIN employee AS boss ON boss.id = employee.boss_id
What is the highest salary in each city where a department is? Show city and salary.
    SELECT dept.city, MAX(employee.salary) FROM employee JOIN dept ON dept.id = employee.dept_id GROUP BY dept.city
Which bosses have more than 5 employees directly under them? Give name and number.
    SELECT boss.name, COUNT(*) FROM employee JOIN employee AS boss ON boss.id = employee.boss_id
    GROUP BY boss.name HAVING COUNT(*) > 5
Which employees earn more than the average of all employees and have no boss? Names, please.
    SELECT name FROM employee WHERE boss_id IS NULL AND salary > (SELECT AVG(salary) FROM employee)
On which project were the most hours worked? Give its title.
    SELECT project.title FROM work JOIN project ON project.id = work.project_id
    GROUP BY project.title ORDER BY SUM(work.hours) DESC LIMIT 1
How many employees work on at least 4 projects?
    SELECT COUNT(*) FROM (SELECT employee_id FROM work GROUP BY employee_id HAVING COUNT(*) >= 4)
List the names of the departments that start with P, in alphabetical order.
    SELECT name FROM dept WHERE name LIKE 'P%' ORDER BY name
Which employees work on both Horizon and Meteor? Give the names.
    SELECT name FROM employee WHERE id IN (SELECT work.employee_id FROM work
    JOIN project ON project.id = work.project_id WHERE project.title = 'Horizon')
    AND id IN (SELECT work.employee_id FROM work JOIN project ON project.id = work.project_id
    WHERE project.title = 'Meteor')
Count the employees in two bands, low for salaries under 36500 and high for the rest. Show band and number.
    SELECT CASE WHEN salary < 36500 THEN 'low' ELSE 'high' END, COUNT(*) FROM employee
    GROUP BY CASE WHEN salary < 36500 THEN 'low' ELSE 'high' END
""",
}
