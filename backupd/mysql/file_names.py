"""How MySQL and MariaDB call the files of a schema or a table, and what a file's name is in SQL.

ASCII letters, digits and `_` stand for themselves. Letters beyond ASCII of alphabets that have capitals are `@` and two
characters, by a table; everything else is `@` and four hexadecimal digits; a name that DOS kept for a device has `@@@`
behind it (MySQL manual, "Mapping of Identifiers to File Names", which tells the ranges, but not each
letter). Each letter here is what MariaDB 10.11.19 answered when it was asked for all characters of two bytes,
and `tests/contract/test_file_names.py` asks again; MySQL 9.7.4 named files of all these letters alike.

A letter and the same one composed of a letter and an accent are two names, here as on the servers. Where a letter has
the code point of another one in some normal form, it is written as an escape, lest an editor makes it that other one.
"""
# ruff: noqa: RUF001 - these letters look alike

import re
from collections.abc import Iterator
from string import ascii_lowercase

_PLAIN = re.compile("[0-9A-Za-z_]")
_CODE = re.compile("@([0-9a-f]{4})|@..", re.DOTALL)
_DEVICE = re.compile("con|prn|aux|nul|com[1-9]|lpt[1-9]", re.IGNORECASE)
_OF_A_DEVICE = "@@@"
_AS_IT_IS = "#mysql50#"  # in SQL, before the name of a file that the server has not made

_PLACES = ascii_lowercase[6:]  # g to z, which `?` stands for: no hexadecimal digits
_ROWS = {  # small letters, and capitals with the letter at `?` as a capital
    "0?": ("àáâãäåæçèéêëìíîïðñòó", "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓ"),
    "1?": ("ôõößøùúûüýþÿāăąćĉċčď", "ÔÕÖ ØÙÚÛÜÝÞŸĀĂĄĆĈĊČĎ"),
    "2?": ("đēĕėęěĝğġģĥħĩīĭįıĳĵķ", "ĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮ ĲĴĶ"),
    "3?": ("ĸĺļľŀłńņňŉŋōŏőœŕŗřśŝ", " ĹĻĽĿŁŃŅŇ ŊŌŎŐŒŔŖŘŚŜ"),
    "4?": ("şšţťŧũūŭůűųŵŷźżžſ", "ŞŠŢŤŦŨŪŬŮŰŲŴŶŹŻŽ"),
    "5?": ("                  ΐ", ""),
    "6?": ("άέήίΰαβγδεζηθικλμνξο", "ΆΈΉΊ Α ΓΔΕΖΗ Ι ΛΜΝΞΟ"),
    "7?": ("πρςστυφχψωϊϋόύώ ϐϑ", " Ρ  ΤΥ ΧΨΩΪΫΌΎΏ ΒΘϒϓ"),
    "8?": (" ϕϖϗϙϛϝϟϡϣϥϧϩϫϭϯϰϱϲϳ", "ϔΦΠ  ϚϜϞϠϢϤϦϨϪϬϮΚ Σ"),
    "9?": ("ϵ϶ϸϻϼ", "     ϽϾϿ"),
    "?0": ("абвгдежзийклмнопрсту", "АБВГДЕЖЗИЙКЛМНОПРСТУ"),
    "?1": ("фхцчшщъыьэюяѐёђѓєѕії", "ФХЦЧШЩЪЫЬЭЮЯЀЁЂЃЄЅІЇ"),
    "?2": ("јљњћќѝўџѡѣѥѧѩѫѭѯѱѳѵѷ", "ЈЉЊЋЌЍЎЏѠѢѤѦѨѪѬѮѰѲѴѶ"),
    "?3": ("ѹѻѽѿҁ ҋҍҏґғҕҗҙқҝҟҡңҥ", "ѸѺѼѾҀ ҊҌҎҐҒҔҖҘҚҜҞҠҢҤ"),
    "?4": ("ҧҩҫҭүұҳҵҷҹһҽҿ ӂӄӆӈӊӌ", "ҦҨҪҬҮҰҲҴҶҸҺҼҾӀӁӃӅӇӉӋ"),
    "?5": ("ӎ ӑӓӕӗәӛӝӟӡӣӥӧөӫӭӯӱӳ", "Ӎ ӐӒӔӖӘӚӜӞӠӢӤӦӨӪӬӮӰӲ"),
    "?6": ("ӵӷӹ      ԁԃԅԇԉԋԍԏ", "ӴӶӸ      ԀԂԄԆԈԊԌԎ"),
    "?7": (" աբգդեզէըթժիլխծկհձղճ", " ԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃ"),
    "?8": ("մյնշոչպջռսվտրցւփքօ", "ՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕ"),
    "?9": ("ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅺⅻⅼⅽⅾⅿ", "ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩⅪⅫⅬⅭⅮⅯ"),
    "?a": ("ƀƃƅƈƌƍƒƕƙƚƛƞơƣƥƨƪƫƭư", " ƂƄƇƋ ƑǶƘȽ ȠƠƢƤƧ  ƬƯ"),
    "?b": ("ƴƶƹƺƻ ƾƽǆǉǌǎǐǒǔǖǘǚǜǝ", "ƳƵƸ    ƼǄǇǊǍǏǑǓǕǗǙǛƎ"),
    "?c": ("ǟǡǣǥǧǩǫǭǯǰǳǵǹǻǽǿȁȃȅȇ", "ǞǠǢǤǦǨǪǬǮ ǱǴǸǺǼǾȀȂȄȆ"),
    "?d": ("ȉȋȍȏȑȓȕȗșțȝȟȡȣȥȧȩȫȭȯ", "ȈȊȌȎȐȒȔȖȘȚȜȞ ȢȤȦȨȪȬȮ"),
    "?e": ("ȱȳȴȵȶȷȸȹ ȼ ȿɀ", "ȰȲ      ȺȻȾ"),
    "?f": ("       ɐɑɒɓɔɕɖɗɘəɚɛɜ", "          ƁƆ ƉƊ Ə Ɛ"),
    "?g": ("ɝɞɟɠɡɢɣɤɥɦɧɨɩɪɫɬɭɮɯɰ", "   Ɠ  Ɣ    ƗƖ     Ɯ"),
    "?h": ("ɱɲɳɴɵɶɷɸɹɺɻɼɽɾɿʀʁʂʃʄ", " Ɲ  Ɵ          Ʀ  Ʃ"),
    "?i": ("ʅʆʇʈʉʊʋʌʍʎʏʐʑʒʓʔʕʖʗʘ", "   Ʈ ƱƲ      Ʒ Ɂ"),
    "?j": ("ʙʚʛʜʝʞʟʠʡʢʣʤʥʦʧʨʩʪʫʬ", ""),
    "?k": ("ʭʮʯ", ""),
    "?l": ("ḁḃḅḇḉḋḍḏḑḓḕḗḙḛḝḟḡḣḥḧ", "ḀḂḄḆḈḊḌḎḐḒḔḖḘḚḜḞḠḢḤḦ"),
    "?m": ("ḩḫḭḯḱḳḵḷḹḻḽḿṁṃṅṇṉṋṍṏ", "ḨḪḬḮḰḲḴḶḸḺḼḾṀṂṄṆṈṊṌṎ"),
    "?n": ("ṑṓṕṗṙṛṝṟṡṣṥṧṩṫṭṯṱṳṵṷ", "ṐṒṔṖṘṚṜṞ ṢṤṦṨṪṬṮṰṲṴṶ"),
    "?o": ("ṹṻṽṿẁẃẅẇẉẋẍẏẑẓẕẖẗẘẙẚ", "ṸṺṼṾẀẂẄẆẈẊẌẎẐẒẔ"),
    "?p": ("ẛ    ạảấầẩẫậắằẳẵặẹẻẽ", "Ṡ    ẠẢẤẦẨẪẬẮẰẲẴẶẸẺẼ"),
    "?q": ("ếềểễệỉịọỏốồổỗộớờởỡợụ", "ẾỀỂỄỆỈỊỌỎỐỒỔỖỘỚỜỞỠỢỤ"),
    "?r": ("ủứừửữựỳỵỷỹ", "ỦỨỪỬỮỰỲỴỶỸ"),
    "?s": ("ἀἁἂἃἄἅἆἇἐἑἒἓἔἕ    ἠἡ", "ἈἉἊἋἌἍἎἏἘἙἚἛἜἝ    ἨἩ"),
    "?t": ("ἢἣἤἥἦἧἰἱἲἳἴἵἶἷὀὁὂὃὄὅ", "ἪἫἬἭἮἯἸἹἺἻἼἽἾἿὈὉὊὋὌὍ"),
    "?u": ("    ὐὑὒὓὔὕὖὗ    ὠὡὢὣ", "     Ὑ Ὓ Ὕ Ὗ    ὨὩὪὫ"),
    "?v": (
        "ὤὥὦὧὰ\u1f71ὲ\u1f73ὴ\u1f75ὶ\u1f77ὸ\u1f79ὺ\u1f7bὼ\u1f7d",
        "ὬὭὮὯᾺ\u1fbbῈ\u1fc9Ὴ\u1fcbῚ\u1fdbῸ\u1ff9Ὺ\u1febῺ\u1ffb",
    ),
    "?w": ("ᾀᾁᾂᾃᾄᾅᾆᾇᾐᾑᾒᾓᾔᾕᾖᾗᾠᾡᾢᾣ", "ᾈᾉᾊᾋᾌᾍᾎᾏᾘᾙᾚᾛᾜᾝᾞᾟᾨᾩᾪᾫ"),
    "?x": ("ᾤᾥᾦᾧᾰᾱᾲᾳᾴ ᾶᾷῂῃῄ ῆῇῐῑ", "ᾬᾭᾮᾯᾸᾹ ᾼ     ῌ    ῘῙ"),
    "?y": ("ῒ\u1fd3  ῖῗ ῠῡῢ\u1fe3ῤῥῦῧ  ῲῳ", "       ῨῩ   Ῥ     ῼ"),
    "?z": (" ῶῷ", ""),
}


def _letters() -> Iterator[tuple[str, str]]:
    """Each letter that is shortened, and to what."""
    for row, (small, capitals) in _ROWS.items():
        for places, letters in ((_PLACES, small), (_PLACES.upper(), capitals)):
            pairs = zip(letters, places, strict=False)  # a row ends with its last letter
            yield from ((letter, "@" + row.replace("?", place)) for letter, place in pairs if letter != " ")
    for row, first in (("@?", 0x24D0), ("?@", 0xFF41)):  # in circles, and of full width
        for number, place in enumerate(ascii_lowercase):
            capital = first + number + (-26 if row == "@?" else -32)
            yield chr(first + number), "@" + row.replace("?", place)
            yield chr(capital), "@" + row.replace("?", place.upper())


_SHORTENED = dict(_letters())
_LENGTHENED = {code: letter for letter, code in _SHORTENED.items()}


def file_name(name: str) -> str:
    """What the files of a schema or table of this name are called, before the first dot."""
    if name.startswith(_AS_IT_IS):
        return name.removeprefix(_AS_IT_IS)
    coded = "".join(c if _PLAIN.fullmatch(c) else _SHORTENED.get(c) or _escaped(c) for c in name)
    return coded + _OF_A_DEVICE if _DEVICE.fullmatch(name) else coded


def sql_name(file: str) -> str:
    """The name of a schema or table whose files are called so. It may have any character in it.

    A file that no server names so is in SQL what the servers call it: its own name behind `#mysql50#`.
    """
    name = _CODE.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else _LENGTHENED.get(found[0], found[0]),
        file.removesuffix(_OF_A_DEVICE),
    )
    return name if file_name(name) == file else _AS_IT_IS + file


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"@{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
