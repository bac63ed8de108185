"""The robust suite, written by hand: gold items that are asked in another way. What is right does not change.

    paraphrased  other words and another order, as plain as before
    vague        as people ask who do not know the tables: no column, no table, no word of SQL
    roundabout   with a story, politeness or a reason that has nothing to do with the answer

The first line is the question of the gold item; the answer is that item's SQL.
"""

QUESTIONS = {
    "library": """
In which city does Iris Moss live?
    paraphrased: Name the city that is the home of Iris Moss.
How many books belong to the History genre?
    roundabout: My sister wants to read nothing but History this year. Would you tell me how many such books we
    have?
Give the titles of the books that are shorter than 150 pages.
    paraphrased: Which books have fewer than 150 pages? Return their titles.
How many pages do the Science books have on average?
    vague: How thick is a Science book, typically, in pages?
How often were Crime books lent out?
    vague: How many times did a Crime book leave the house?
How many different members have borrowed at least one book?
    roundabout: The board keeps asking whether anybody still uses us: count the people who took home a book at
    least once.
Give the name and the city of all members over 70.
    paraphrased: For each member older than 70, show name and city.
Which authors have written 5 or more books? Show their names.
    vague: Who are our prolific writers, with 5 books or more? Just the names.
Name the members from Turin who have never borrowed a book.
    roundabout: I am writing to people in Turin who signed up but have not borrowed anything yet; whose names go
    on the envelopes?
How many loans of 2023 lasted longer than 30 days?
    paraphrased: Count the loans from the year 2023 that went on for more than 30 days.
""",
    "clinic": """
What is the specialty of doctor Nils Kim?
    vague: What kind of medicine does Nils Kim do?
How many doctors practise in Lisbon?
    paraphrased: Count the doctors whose city is Lisbon.
List the names of patients aged 80 or more.
    roundabout: We plan a tea afternoon for everyone who has turned 80 or is even older. Who among the patients
    is to be invited, by name?
Which drugs cost less than 25? Show the names.
    paraphrased: Give me the name of every drug with a price under 25.
How many visits took place in each year?
    vague: How busy were we, year by year? Show year and number.
What is the average age of the patients from Oslo?
    paraphrased: Patients living in Oslo: how old are they on average?
Show the name and specialty of all doctors in Turin.
    roundabout: A friend is moving to Turin and would like to know which doctors there are and in what they
    specialise; list name and specialty.
What did the visits of patients from Lyon cost altogether?
    vague: How much money did the people from Lyon bring us in all?
How many visits had no prescription?
    paraphrased: Count the visits for which nothing was prescribed.
Show the name and age of patients from Ghent or Turin.
    paraphrased: Patients who live in either Ghent or Turin: list each one's name and age.
""",
    "shop": """
To which category does the Robot belong?
    vague: What sort of thing is the Robot?
How many customers come from Ghent?
    roundabout: Before we rent a market stall there, tell me how many of our customers live in Ghent.
What are the names of the products that cost more than 300?
    paraphrased: List the name of each product priced above 300.
How many products are there in each category?
    vague: How wide is our range, category by category? Show category and number.
What does a Furniture product cost on average?
    paraphrased: Give the mean price of the products in the category Furniture.
Which Tools product is the cheapest? Give its name.
    roundabout: My neighbour is short of money but needs something from Tools; what is the name of the one with
    the lowest price?
Show the name and the city of customers younger than 25.
    paraphrased: For customers below the age of 25, return name and city.
How many purchases did Iris Kim make?
    vague: How often did Iris Kim shop with us?
Who has never purchased anything? Show the customers' names and cities.
    roundabout: Some people only ever look around. Which customers have bought nothing at all so far? Name and
    city, please.
List all products that are neither Toys nor Tools, with name and category.
    paraphrased: Leaving out Toys and Tools, show every product's name and its category.
""",
    "school": """
What is the salary of the teacher Tara Moss?
    vague: What does Tara Moss take home for teaching?
Count the courses that are worth 6 credits.
    paraphrased: How many courses give 6 credits?
Give the names of all students from Ghent.
    paraphrased: Which students live in Ghent? Return their names.
Which teachers earn more than 64000? Names only.
    roundabout: The tax office has a question about everyone in the staff room paid over 64000; who are these
    teachers, by name?
What do Biology teachers earn on average?
    paraphrased: What is the mean salary of teachers whose subject is Biology?
How many students come from each city?
    vague: Where do our students come from, and how many from each place? Show city and number.
Which courses does Kira Evans teach? Show title and credits.
    roundabout: I liked the lesson of Kira Evans so much that I want to take all her courses. What are their
    titles and credits?
What is the average score of the students from Lyon?
    vague: How well do the people from Lyon do, on average?
How many students failed at least once, that is, scored under 50?
    paraphrased: Count the different students who have at least one score below 50.
Which subjects pay at least one teacher more than 66000? List each subject once.
    paraphrased: In which subjects is there a teacher with a salary above 66000? Show every such subject a
    single time.
""",
    "league": """
What position does Vera Grant play?
    vague: Where on the field do I find Vera Grant?
How many teams are based in Ghent?
    paraphrased: Count the teams whose city is Ghent.
List the names of the teams with a budget above 650.
    roundabout: A sponsor will only talk to teams that can spend more than 650. Whom may he call? Give the team
    names.
Give the names of all players older than 36.
    paraphrased: Which players are past the age of 36? Show their names.
How many players are there in each position?
    vague: How are the players spread over the field? Show position and number.
What was the average number of fans at the games of 2023?
    roundabout: For the new stands we must know how full it used to be: how many fans came to a game of 2023, on
    average?
Which team has the smallest budget? Give its name.
    vague: Who is the poorest team? Its name, please.
How many Keepers are older than 30?
    paraphrased: Count the players in the position Keeper who are over 30.
How many players does the team Knights have?
    vague: How large is the squad of the Knights?
How many games ended without any goal?
    paraphrased: Count the games in which no goal was scored.
""",
    "company": """
In which city is the Research department?
    vague: Where do the people from Research sit? The city is enough.
How many projects are from 2023?
    paraphrased: Count the projects whose year is 2023.
List the names of the employees who earn less than 25000.
    roundabout: Prices have gone up, and the works council worries about everyone paid below 25000. Which
    employees are these, by name?
Show title and budget of the projects of 2024.
    paraphrased: For every project from the year 2024, return its title and its budget.
How many departments does each city have?
    vague: How many departments have we got in each place? Show city and number.
Who earns the most? Give the name of the employee.
    paraphrased: Return the name of the employee with the highest salary.
How much do all employees earn together?
    vague: What does the whole staff cost us in salaries?
How many employees have no boss?
    roundabout: At the summer party somebody claimed that nobody here is really free. Count the employees who
    have no boss at all.
How many people work in the Audit department?
    vague: How big is Audit, in heads?
Which employees work in a department in Lyon? Give their names.
    paraphrased: List the names of the employees whose department is in the city of Lyon.
""",
}
