"""Questions with words that no query uses are not computed, and columns of yes and no are conditions."""

import pytest
from stored_tables import table_of

from localctx.library.tables.table import DataTable
from localctx.library.tables.table_queries import queries

INVOICES = "Invoice,Date,Customer,City,Net amount,VAT,Paid,Sent on\n" + "".join(
    f"2025-{i + 1:03},2025-{1 + i * 5 % 12:02}-{1 + i * 7 % 28:02},{('Adler', 'Brandt', 'Cohen')[i % 3]},"
    f"{('Hamburg', 'Lyon', 'Oslo', 'Berlin')[i * 7 // 3 % 4]},{50 + i * 37 % 700}.50,{i * 11 % 7},"
    f"{'yes' if i % 2 else 'no'},{'2025-03-01' if i % 3 else ''}\n"
    for i in range(40)
)
MEMBERS = "name,city,active,cancelled\n" + "".join(
    f"N{i},{'Oslo' if i % 4 else 'Bonn'},{'TRUE' if i % 2 else 'FALSE'},{'' if i % 5 else 'x'}\n" for i in range(20)
)


def written(header: str, yes: str, no: str) -> str:
    rows = (f"R{i},{'Adler' if i % 3 else 'Brandt'},{100 + i * 37 % 300},{yes if i % 2 else no}" for i in range(20))
    return "\n".join([header, *rows])


PRODUCTS = "product,class,size,gender,price,delivered\n" + "".join(
    f"P{i:02},{'ABC'[i % 3]},{('S', 'M', 'L', 'XL')[i % 4]},{'FM'[i * 7 // 2 % 2]},{5 + i * 3 % 17},"
    f"{2023 + i % 3}-{1 + i % 12:02}-{1 + i % 28:02}\n"
    for i in range(30)
)
RECHNUNGEN = written("Rechnung,Kunde,Betrag,Bezahlt", "ja", "nein")
FACTURES = written("facture,client,montant,payée", "oui", "non")
FAPIAO = written("发票号,客户,金额,是否付款", "是", "否")


@pytest.fixture
def invoices(tmp_path) -> DataTable:
    return table_of(tmp_path / "a.csv", INVOICES)


@pytest.mark.parametrize(
    ("text", "question", "where"),
    [
        (INVOICES, "How many invoices are not paid?", "\"Paid\" = 'no'"),
        (INVOICES, "How many invoices are paid?", "\"Paid\" = 'yes'"),
        (INVOICES, "How many unpaid invoices are there?", "\"Paid\" = 'no'"),
        (INVOICES, "How many invoices have not yet been paid?", "\"Paid\" = 'no'"),
        (INVOICES, "How many invoices have already been paid?", "\"Paid\" = 'yes'"),
        (INVOICES, "How many invoices were paid by Adler?", "\"Customer\" = 'Adler' AND \"Paid\" = 'yes'"),
        (INVOICES, "How many invoices aren't paid?", "\"Paid\" = 'no'"),
        (INVOICES, "How many invoices are not unpaid?", "\"Paid\" = 'yes'"),
        (INVOICES, "How many invoices have Paid = no?", "\"Paid\" = 'no'"),
        (INVOICES, "How many invoices from Hamburg are not paid?", "\"City\" = 'Hamburg' AND \"Paid\" = 'no'"),
        (INVOICES, "How many invoices were sent?", '"Sent on" IS NOT NULL'),
        (INVOICES, "How many invoices were not sent?", '"Sent on" IS NULL'),
        (MEMBERS, "How many active names have not cancelled?", '"active" = \'TRUE\' AND "cancelled" IS NULL'),
        (MEMBERS, "How many names are inactive?", "\"active\" = 'FALSE'"),
        (RECHNUNGEN, "Wie viele Rechnungen sind noch nicht bezahlt?", "\"Bezahlt\" = 'nein'"),
        (RECHNUNGEN, "Wie viele unbezahlte Rechnungen gibt es?", "\"Bezahlt\" = 'nein'"),
        (RECHNUNGEN, "Wie viele Rechnungen sind bezahlt?", "\"Bezahlt\" = 'ja'"),
        (FACTURES, "Combien de factures ne sont pas payées ?", "\"payée\" = 'non'"),
        (FACTURES, "Combien de factures sont payées ?", "\"payée\" = 'oui'"),
        (FAPIAO, "有多少张发票没有付款?", "\"是否付款\" = '否'"),
        (FAPIAO, "有多少张发票已付款?", "\"是否付款\" = '是'"),
    ],
)
def test_a_column_of_yes_and_no_is_a_condition_by_its_name(tmp_path, text, question, where):
    assert queries(table_of(tmp_path / "a.csv", text), question) == [f"SELECT COUNT(*) FROM t WHERE {where}"]


@pytest.mark.parametrize(
    "question",
    [
        "How many invoices are overdue?",
        "How many overdue invoices are there?",
        "How many large invoices are there?",
        "How many errors are there?",
        "How many invoices are not from Hamburg?",
        "How many invoices not from Hamburg are paid?",
        "How many invoices are to be paid?",
        "How many invoices are only from Hamburg?",
        "How many invoices are from Hamburg or paid?",
        "How many invoices are from other cities than Hamburg?",
        "How many invoices have VAT?",
        "How many invoices are dated March and April?",
        "How many invoices have a net amount above the average net amount?",
        "How many paid and unpaid invoices are there?",
        "How many invoices are unpaid or from Oslo or Lyon?",
        "How many invoices are from Oslo or Lyon or unpaid?",
        "How many invoices are from Oslo and paid or from Lyon?",
        "How many more invoices are from Oslo than Lyon?",
        "How many more invoices are from Oslo or Lyon?",
        "How many fewer unpaid invoices are from Oslo?",
        "Which city has more invoices than Oslo?",
        "Which city has more invoices?",
        "How many of the invoices were paid in March?",
        "What is the highest and lowest net amount?",
        "Who is the best customer?",
        "Who is the top customer?",
        "Who is our most valuable customer?",
        "Who is the biggest customer?",
        "Which customer is the biggest?",
    ],
)
def test_a_question_with_a_word_that_is_not_used_is_not_computed(invoices, question):
    assert queries(invoices, question) == []


TRAINS = "Train,From,Departure,To,Bicycles\n" + "".join(
    f"{100 + i},{start},{6 + i:02}:12,{end},{'yes' if i % 2 else 'no'}\n"
    for i, (start, end) in enumerate([("Oslo", "Bergen"), ("Bergen", "Oslo"), ("Bergen", "Oslo")] * 4)
)


@pytest.mark.parametrize(
    ("question", "where"),
    [
        ("How many trains go from Oslo to Bergen?", "\"From\" = 'Oslo' AND \"To\" = 'Bergen'"),
        ("How many trains go to Bergen?", "\"To\" = 'Bergen'"),
        ("How many trains allow bicycles?", "\"Bicycles\" = 'yes'"),
    ],
)
def test_the_word_before_a_value_of_several_columns_names_the_column(tmp_path, question, where):
    (query,) = queries(table_of(tmp_path / "a.csv", TRAINS), question)
    assert sorted(query.partition(" WHERE ")[2].split(" AND ")) == sorted(where.split(" AND "))


def test_the_latest_is_not_the_row_with_the_highest_number(tmp_path):
    assert queries(table_of(tmp_path / "a.csv", TRAINS), "What is the latest train from Oslo?") == []


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (RECHNUNGEN, "Wie viele Rechnungen sind überfällig?"),
        (FACTURES, "Combien de factures sont en retard ?"),
        (FAPIAO, "有多少张发票逾期了?"),
    ],
)
def test_unused_words_are_found_in_other_languages(tmp_path, text, question):
    assert queries(table_of(tmp_path / "a.csv", text), question) == []


@pytest.mark.parametrize(
    ("question", "query"),
    [
        (
            "Top 2 customers by net amount",
            'SELECT "Customer", SUM("Net amount") FROM t GROUP BY "Customer" ORDER BY SUM("Net amount") DESC LIMIT 2',
        ),
        (
            "the top 3 invoices by net amount",
            'SELECT "Invoice", "Net amount" FROM t ORDER BY "Net amount" DESC LIMIT 3',
        ),
        ("What is the total net amount of unpaid invoices?", 'SELECT SUM("Net amount") FROM t WHERE "Paid" = \'no\''),
        ("How many invoices by paid?", 'SELECT "Paid", COUNT(*) FROM t GROUP BY "Paid"'),
        ("How many different customers are there?", 'SELECT COUNT(DISTINCT "Customer") FROM t'),
        (
            "How many invoices are from Hamburg or Lyon?",
            "SELECT COUNT(*) FROM t WHERE \"City\" IN ('Hamburg', 'Lyon')",
        ),
        (
            "Which city has the most unpaid invoices?",
            'SELECT "City", COUNT(*) FROM t WHERE "Paid" = \'no\' GROUP BY "City" ORDER BY COUNT(*) DESC LIMIT 1',
        ),
        ("How many invoices have a net amount over 500 euros?", 'SELECT COUNT(*) FROM t WHERE "Net amount" > 500'),
    ],
)
def test_a_question_of_which_each_word_is_used_is_computed(invoices, question, query):
    assert queries(invoices, question) == [query]


def test_yes_and_no_beside_empty_cells_do_not_say_what_is_not_paid(tmp_path):
    table = table_of(tmp_path / "a.csv", "invoice,amount,paid\nA,1,yes\nB,2,no\nC,3,\n")
    assert queries(table, "How many invoices are not paid?") == []
    assert queries(table, "How many invoices are paid?") == ["SELECT COUNT(*) FROM t WHERE \"paid\" = 'yes'"]


@pytest.mark.parametrize(
    ("question", "where"),
    [
        ("How many products are in class B?", "\"class\" = 'B'"),
        ("How many products are class b?", "\"class\" = 'B'"),
        ("How many products are of class A or class C?", "\"class\" IN ('A', 'C')"),
        ("How many products are in class A, B or C?", "\"class\" IN ('A', 'B', 'C')"),
        ("How many products are size M?", "\"size\" = 'M'"),
        ("How many products have size S or XL?", "\"size\" IN ('XL', 'S')"),
        ("How many products have gender F?", "\"gender\" = 'F'"),
        ("How many size M products of gender M are there?", "\"size\" = 'M' AND \"gender\" = 'M'"),
        ("How many B products are there?", "\"class\" = 'B'"),
        ("How many products have a price over 9?", '"price" > 9'),
        ("How many products of class B have a price over 9?", '"class" = \'B\' AND "price" > 9'),
    ],
)
def test_a_letter_is_a_value_beside_its_column_or_as_a_capital(tmp_path, question, where):
    assert queries(table_of(tmp_path / "a.csv", PRODUCTS), question) == [f"SELECT COUNT(*) FROM t WHERE {where}"]


@pytest.mark.parametrize(
    "question",
    [
        "How many products are M?",  # a size and a gender
        "How many products are in class D?",
        "How many products are in class a?",
        "How many products are b?",
        "How many products are A or M?",
        "How many products are size s?",
    ],
)
def test_a_letter_that_may_be_a_value_is_not_left_out(tmp_path, question):
    assert queries(table_of(tmp_path / "a.csv", PRODUCTS), question) == []


def test_a_letter_with_a_sign_is_a_value_of_its_own(tmp_path):
    table = table_of(
        tmp_path / "a.csv", "name,grade\n" + "".join(f"N{i},{('A', 'A+', 'B')[i % 3]}\n" for i in range(9))
    )
    assert queries(table, "How many names have grade A+?") == ["SELECT COUNT(*) FROM t WHERE \"grade\" = 'A+'"]
    assert queries(table, "How many names have grade A?") == ["SELECT COUNT(*) FROM t WHERE \"grade\" = 'A'"]
    assert queries(table, "How many names have grade B-?") == []


@pytest.mark.parametrize(
    ("question", "where"),
    [
        ("How many products were delivered before March 2025?", "\"delivered\" < '2025-03-01'"),
        ("How many products were delivered after March 2025?", "\"delivered\" > '2025-03-31'"),
        ("How many products were delivered since March 2025?", "\"delivered\" >= '2025-03-01'"),
        ("How many products were delivered in March 2025?", "\"delivered\" LIKE '2025-03-%'"),
        ("How many products were delivered since 2024?", "\"delivered\" >= '2024-01-01'"),
        ("How many products were delivered after 2024?", "\"delivered\" > '2024-12-31'"),
        ("How many products were delivered earlier than 2024?", "\"delivered\" < '2024-01-01'"),
        ("How many products with a price over 9 in March 2025?", '"price" > 9 AND "delivered" LIKE \'2025-03-%\''),
        ("How many products with a price over 9 in 2025?", '"price" > 9 AND "delivered" LIKE \'2025-%\''),
        ("How many products with a price under 9 since 2025?", '"price" < 9 AND "delivered" >= \'2025-01-01\''),
        ("How many products were delivered on 1st March 2025?", "\"delivered\" = '2025-03-01'"),
        ("How many products were delivered on the 1st of March, 2025?", "\"delivered\" = '2025-03-01'"),
        ("How many products were delivered before 1 March 2025?", "\"delivered\" < '2025-03-01'"),
        ("How many products were delivered after March 12, 2025?", "\"delivered\" > '2025-03-12'"),
        ("How many products were delivered before 01.03.2025?", "\"delivered\" < '2025-03-01'"),
        ("How many products with a price over 9 on 2024-05-05?", '"price" > 9 AND "delivered" = \'2024-05-05\''),
    ],
)
def test_a_comparison_belongs_to_the_date_after_it(tmp_path, question, where):
    assert queries(table_of(tmp_path / "a.csv", PRODUCTS), question) == [f"SELECT COUNT(*) FROM t WHERE {where}"]


@pytest.mark.parametrize(
    "question",
    [
        "How many products were delivered until March 2025?",
        "How many products were delivered through March 2025?",
        "How many products were delivered by March 2025?",
        "How many products were delivered after May?",
        "How many products were delivered since March?",
        "How many products were delivered from March to May 2025?",
        "How many products were delivered between March and May 2025?",
        "How many products were delivered before 31 February 2025?",
        "How many products were delivered before 1 March?",
        "How many products were delivered before 01/03/2025?",
        "How many products were delivered before 3/2025?",
        "How many products were delivered before 2025-03?",
        "How many products were delivered until 2024?",
        "How many products cost over 2000?",
        "How many products were delivered between 2024-01-01 and 2024-06-01?",
        "How many products were delivered from 2024-01-01 on?",
        "How many products were delivered in March 2025 or later?",
    ],
)
def test_a_span_of_time_that_no_query_states_exactly_is_not_computed(tmp_path, question):
    assert queries(table_of(tmp_path / "a.csv", PRODUCTS), question) == []


def test_years_in_columns_are_compared_from_the_year_that_is_named(tmp_path):
    table = table_of(tmp_path / "a.csv", "boat,built\n" + "".join(f"B{i},{1990 + i * 7 % 30}\n" for i in range(20)))
    assert queries(table, "How many boats were built since 2000?") == ['SELECT COUNT(*) FROM t WHERE "built" >= 2000']
    assert queries(table, "How many boats were built until 2000?") == []
