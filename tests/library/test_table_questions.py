"""Questions about tables: the queries they may mean, their results, and the rows that these come from."""

import sqlite3

import pytest
from office_files import saved

from localctx.library.read_document import read_document
from localctx.library.tables.question_words import wanted
from localctx.library.tables.table import DataTable, tables_of
from localctx.library.tables.table_answer import tell_result
from localctx.library.tables.table_database import opened, parse_query, run_query
from localctx.library.tables.table_lookups import lookup_query
from localctx.library.tables.table_queries import likeliest_table, queries
from localctx.store.documents import StoredDocument

ORCHARD = """tree,kind,planted,row,height_m,yield_kg
Alma,apple,2011-03-02,1,3.5,41
Bela,pear,2012-11-20,1,4.25,38
Cora,apple,2015-04-01,2,2.75,12
Dana,plum,2011-10-09,2,3,55
Ella,apple,2019-03-15,3,1.5,4
Fina,pear,2015-11-30,3,4.5,
Total,,,,,150
"""


@pytest.fixture
def read(tmp_path):
    """Reads the tables of a file."""

    def read(data: bytes | str, name: str = "a.csv") -> list[DataTable]:
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        document = read_document(str(tmp_path / name))
        return tables_of(StoredDocument(document.row, document.text, document.spans))

    return read


@pytest.fixture
def orchard(read) -> DataTable:
    (table,) = read(ORCHARD)
    return table


def answer(table: DataTable, question: str) -> tuple[str, list[str]]:
    """The answer to a question that only one query fits, and the numbers of its rows."""
    (query,) = queries(table, question)
    result = run_query(table, query)
    return tell_result(table, parse_query(query), result, question), [row.number for row in result.rows]


# The tables of a document


def test_a_table_has_the_rows_under_a_header_without_totals(orchard):
    assert orchard.names == ("tree", "kind", "planted", "row", "height_m", "yield_kg")
    assert [column.kind for column in orchard.columns.values()] == ["text", "text", "day", *["number"] * 3]
    assert ([row.number for row in orchard.rows], orchard.totals) == (["2", "3", "4", "5", "6", "7"], ("8",))
    assert orchard.values["yield_kg"] == [41, 38, 12, 55, 4, None]


def test_each_sheet_and_each_header_begins_a_table(read):
    import openpyxl

    book = openpyxl.Workbook()
    first, second = book.active, book.create_sheet("Boats")
    first.title = "Crew"
    for row in (["Name", "Age", "Home"], ["Ada", 30, "Varna"], ["Bo", 40, "Olmen"]):
        first.append(row)
    for row in (["Fleet"], ["Boat", "Length", "Built"], ["Vega", 9.5, 1999], ["Lyra", 12, 2004]):
        second.append(row)
    book.active.append([])
    for row in (["Port", "Fee", "Days"], ["Varna", 10, 3], ["Olmen", 20, 4]):
        first.append(row)
    crew, ports, boats = read(saved(book), "a.xlsx")
    assert (crew.sheet, crew.names, ports.names) == ("Crew", ("Name", "Age", "Home"), ("Port", "Fee", "Days"))
    assert (boats.sheet, boats.names, len(boats.rows)) == ("Boats", ("Boat", "Length", "Built"), 2)
    assert likeliest_table([crew, ports, boats], "What is the highest fee?") is ports
    assert likeliest_table([crew, ports, boats], "How long is the longest boat in total length?") is boats


def test_groups_of_columns_and_merged_values_are_computed_with(read):
    import openpyxl

    book = openpyxl.Workbook()
    for row in (
        ["Region", 2023, None, 2024, None],
        [None, "Units", "Price", "Units", "Price"],
        ["North", 10, 3.5, 12, 4.25],
        [None, 20, 1.5, 18, 1.75],
        ["South", 5, 2, 7, 2.5],
    ):
        book.active.append(row)
    for place in ("A1:A2", "B1:C1", "D1:E1", "A3:A4"):
        book.active.merge_cells(place)
    (table,) = read(saved(book), "a.xlsx")
    told, rows = answer(table, "What is the sum of the 2024 units in the North?")
    assert (told, rows) == ("Total 2024 / Units: 30 (2 of 3 rows).", ["3", "4"])


def test_values_with_separators_belong_to_their_column(read):
    (table,) = read('name,note,size\nAda,"a; b: c",1\nBo,"size: large; x",2\n')
    assert [row.texts["note"] for row in table.rows] == ["a; b: c", "size: large; x"]


# Questions


@pytest.mark.parametrize(
    ("question", "told", "rows"),
    [
        ("How many trees are there?", "6 rows ({total}).", "234567"),
        ("How many apple trees have a height over 2 m?", "2 of 6 rows ({total}).", "24"),
        ("How many kinds are there?", "3 different values of kind (all 6 rows; {total}).", "234567"),
        ("What is the total yield?", "Total yield_kg: 150 (5 of 6 rows; {total}).", "23456"),
        ("total yield of apples and plums", "Total yield_kg: 112 (4 of 6 rows; {total}).", "2456"),
        ("Average height of the pear trees?", "Average height_m: 4.375 (2 of 6 rows; {total}).", "37"),
        ("Which tree has the highest yield?", "Dana (yield_kg: 55).", "5"),
        ("What is the lowest height?", "1.5 (tree: Ella).", "6"),
        ("Which tree was the latest planted in 2015?", "Fina (planted: 2015-11-30).", "7"),
        ("Which kind has the most trees?", "apple (rows: 3) (3 of 6 rows; {total}).", "246"),
        ("How many trees were planted in November?", "2 of 6 rows ({total}).", "37"),
        ("How many trees were planted before 2012?", "2 of 6 rows ({total}).", "25"),
        ("How many have a yield between 10 and 40?", "2 of 6 rows ({total}).", "34"),
        ("How many trees yield at least 41 kg?", "2 of 6 rows ({total}).", "25"),
        ("How many plum trees have a yield over 55?", "No row of the table matches (0 of 6 rows).", ""),
    ],
)
def test_a_question_is_computed_over_all_rows(orchard, question, told, rows):
    total = "row 8 is left out as a total"
    assert answer(orchard, question) == (told.format(total=total), list(rows))


def test_numbers_have_separators_but_numbers_of_rows_and_years_have_none(read):
    rows = "".join(f"{5001 + 7 * i},{1990 + i},{1200 + i % 2}.50,{3000 + i % 3}\n" for i in range(12))
    (table,) = read(f"Order,Built,Net amount,Stock\n{rows}")
    assert answer(table, "What is the total net amount?")[0] == "Total net amount: 14,412.00 (all 12 rows)."
    assert answer(table, "What is the average Net amount?")[0] == "Average Net amount: 1,201 (all 12 rows)."
    told, _ = answer(table, "Which orders were built after 2000?")
    assert told == "Order: 5078; Built: 2001; Net amount: 1,201.50; Stock: 3,002."


def test_groups_and_the_best_few_are_listed(orchard):
    told, _ = answer(orchard, "What is the total yield by kind?")
    assert told.splitlines()[1:] == ["- apple (total yield_kg: 57)", "- pear (total yield_kg: 38)",
                                     "- plum (total yield_kg: 55)"]  # fmt: skip
    told, rows = answer(orchard, "the top 2 trees by yield")
    assert (told.splitlines()[1:], rows) == (["- Dana (yield_kg: 55)", "- Alma (yield_kg: 41)"], ["5", "2"])


def test_all_rows_that_tie_are_named(read):
    (table,) = read("name,points,team\nAda,7,x\nBo,9,y\nCy,9,x\n")
    told, rows = answer(table, "Who has the most points?")
    assert rows == ["3", "4"]
    assert "9 (name: Bo)" in told
    assert "9 (name: Cy)" in told


def test_columns_that_fit_alike_give_several_queries(orchard):
    assert {query.partition(" FROM")[0] for query in queries(orchard, "What is the total?")} == {
        'SELECT SUM("row")',
        'SELECT SUM("height_m")',
        'SELECT SUM("yield_kg")',
    }


@pytest.mark.parametrize(
    "question", ["Where is Alma planted?", "What kind of tree is Bela?", "Who owns the orchard by the river?"]
)
def test_a_question_that_computes_nothing_has_no_query(orchard, question):
    assert queries(orchard, question) == []


@pytest.mark.parametrize(
    ("question", "kinds"),
    [
        ("Wie viele Bäume gibt es?", {"count"}),
        ("Wie hoch ist die durchschnittliche Miete pro Stadt?", {"mean", "group"}),
        ("Quel est le loyer le plus élevé ?", {"max"}),
        ("¿Cuántos árboles tienen más de 10 kg?", {"count", "over"}),
        ("Qual è la somma?", {"sum"}),
        ("Сколько всего деревьев?", {"count", "sum"}),
        ("最高的价格", {"max"}),
        ("売上の合計", {"sum"}),
        ("금액 1000 이상 송장은 몇 개?", {"over or equal", "count"}),
        ("低于1000以下的有几个", {"under", "under or equal", "count"}),
        ("Who has at least 5 and at most 9?", {"over or equal", "under or equal"}),
    ],
)  # fmt: skip
def test_what_is_wanted_is_recognized_in_many_languages(question, kinds):
    assert wanted(question).kinds == kinds


def test_hostile_names_and_values_stay_text(read):
    (table,) = read('"na""me","x); DROP TABLE t; --","it\'s"\n"O\'Hara",1,2\n"Bo ""B""",3,4\n')
    (query,) = queries(table, "What is the total of it's in O'Hara?")
    assert run_query(table, query).values == [(2.0,)]


def test_a_query_can_only_read(orchard):
    with opened(orchard) as db, pytest.raises(sqlite3.OperationalError, match="write"):
        db.execute("DELETE FROM t")


def test_the_parts_of_a_query_are_found_among_names_like_keywords():
    parsed = parse_query('SELECT "a, FROM b", SUM("c") FROM t WHERE "WHERE" = \'x LIMIT 5\' GROUP BY "d" LIMIT 1')
    assert list(parsed.select) == ['"a, FROM b"', 'SUM("c")']
    assert (parsed.where, parsed.group, parsed.order, parsed.limit) == ("\"WHERE\" = 'x LIMIT 5'", '"d"', "", 1)


RENTS = "contract;tenant;square_metres;rent_crowns\n" + "".join(
    f"{1000 + i};Tenant {i};{10 + i * 37 % 80};{100 + i * 53 % 700}\n" for i in range(40)
)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            "What is the average rent of contracts with more than 60 square metres?",
            ['SELECT AVG("rent_crowns") FROM t WHERE "square_metres" > 60'],
        ),
        (
            "What is the average rent of contracts with a rent over 300?",
            ['SELECT AVG("rent_crowns") FROM t WHERE "rent_crowns" > 300'],
        ),
        (
            "How many contracts have a rent of 153?",
            ['SELECT COUNT(*) FROM t WHERE "rent_crowns" = 153'],
        ),
        ("Which tenant has more than 3 contracts?", []),  # a number of rows
        ("Which contract has more than 1 tenant?", []),
        ("How many contracts were signed in 2019?", []),
        ("What is the total rent over the last 12 months?", []),
    ],
)
def test_a_condition_is_used_or_nothing_is_computed(read, question, expected):
    (table,) = read(RENTS)
    assert queries(table, question) == expected


SALES = "country,euros\n" + "Austria,10\nAustria,20\nNorway,5\nItaly,7\nItaly,8\nBrazil,1\n"


@pytest.mark.parametrize(
    ("question", "country"),
    [
        ("What is the total of euros in Austria?", "Austria"),
        ("What is the total of euros of the Austrians?", "Austria"),
        ("What is the total of euros of the Norwegians?", "Norway"),
        ("What is the total of euros of the Italians?", "Italy"),
        ("What is the total of euros of the Brazilians?", "Brazil"),
        ("What is the total of euros in Australia?", None),
        ("What is the total of euros of the Australians?", None),
    ],
)
def test_a_country_is_known_by_its_adjective_and_no_other_country_is_taken_for_it(read, question, country):
    (table,) = read(SALES)
    condition = f""" WHERE "country" = '{country}'"""
    assert queries(table, question) == ([f'SELECT SUM("euros") FROM t{condition}'] if country else [])


def test_numbers_that_name_rows_are_counted_and_never_summed_or_compared(read):
    (table,) = read("invoice,customer,price\n1007,A,5\n1031,B,2\n1019,A,4\n1012,A,9\n1050,B,1\n")
    assert queries(table, "Which customer has more than 3 invoices?") == []
    assert queries(table, "How many invoices have a price over 3?") == ['SELECT COUNT(*) FROM t WHERE "price" > 3']
    assert answer(table, "How many invoices does customer A have?") == ("3 of 5 rows.", ["2", "4", "5"])
    (table,) = read("Ort,Einwohner\nA,5\nB,2\n")
    assert queries(table, "Wie viele Einwohner gibt es insgesamt?") == ['SELECT SUM("Einwohner") FROM t']


def test_groups_that_tie_are_answered_from_the_rows_of_all(read):
    (table,) = read("city,rent\nOslo,5\nOslo,5\nBern,4\nBern,6\nRome,1\nRome,2\n")
    _, rows = answer(table, "Which city has the highest total rent?")
    assert rows == ["2", "3", "4", "5"]


def test_more_groups_than_sqlite_nests_may_tie(read):
    (table,) = read("customer,order\n" + "".join(f"C{i},1\n" for i in range(1200)))
    _, rows = answer(table, "Which customer has the fewest orders?")
    assert len(rows) == 1000, "as many as a result has at most"


def test_names_that_sqlite_uses_itself_are_names_of_columns_too(read):
    (table,) = read("rowid,city,sales\nx,Oslo,4\ny,Bern,2\nz,Oslo,1\n")
    _, rows = answer(table, "What are the total sales in Oslo?")
    assert rows == ["2", "4"]
    (twice,) = read("Name,Price,price\na,1,2\nb,3,4\n")
    assert queries(twice, "What is the total price?") == []


INVOICES = "Invoice,Town,Net amount,Due date\n" + "".join(
    f"A-{i},{('York', 'Bath', 'Leeds', 'Hull')[i % 4]},{30 + 9 * i},2026-02-{i:02}\n" for i in range(1, 13)
)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What is the net amount of invoice A-7?", "Net amount: 93."),
        ("What is the town of A-12?", "Town: York."),
        ("What are the town and the net amount of A-3?", "Town: Hull; Net amount: 57."),
        ("What was the net amount of the invoice a-1?", "Net amount: 39."),  # and not of
    ],
)
def test_a_question_about_the_cells_of_one_row_is_looked_up(read, question, told):
    tables = read(INVOICES)
    assert queries(tables[0], question) == []
    table, query = lookup_query(tables, question)
    assert tell_result(table, parse_query(query), run_query(table, query), question) == told


@pytest.mark.parametrize(
    "question",
    [
        "What is the net amount of A-99?",
        "What is the net amount of A-3 and A-4?",
        "What is the net amount of York?",  # it has several rows
        "What is the amount of A-7?",  # another amount may be meant
        "What is the due net amount of A-7?",
        "What is 10 % of the net amount of A-7?",
        "What is the net amount of A-7 in 2019?",
        "What is the net amount of A-7/1?",
        "When is A-7 due?",
        "Who sent A-7?",
        "Explain the net amount of A-7.",
    ],
)
def test_a_question_with_any_other_word_is_not_looked_up(read, question):
    assert lookup_query(read(INVOICES), question) is None


def test_a_row_that_several_tables_have_is_not_looked_up(read):
    tables = read(INVOICES) * 2
    assert lookup_query(tables, "What is the net amount of A-7?") is None
