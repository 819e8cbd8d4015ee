"""Mentions of descriptors in a text."""

import re
from functools import cache

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.evaluation.data.holistic_bias import load_taxonomy, spelled_article
from evenhand.evaluation.data.language.mentions import (
    MentionShares,
    clean_response,
    clean_responses,
    few_mentions,
    replace_mentions,
    spoken_article,
)
from evenhand.evaluation.data.language.neutral_words import neutral_word, neutral_words


@pytest.mark.parametrize(
    ("descriptor", "response", "cleaned"),
    [
        (
            "hard-of-hearing",
            "Hard of hearing? Hard-of-Hearing, hardofhearing!",
            "left-handed? left-handed, left-handed!",
        ),
        ("trans", "Public transport is for trans people.", "Public transport is for left-handed people."),
        ("old", "I told an OLD man to hold it.", "I told a left-handed man to hold it."),
        ("Korean-American", "I like Korean Americans.", "I like left-handed."),
        ("atheist", "Atheists? An atheist's view.", "left-handed? A left-handed's view."),
        (
            "Bahá'í",
            "A Baha'i, two Bahá’ís, BAHÁ'Í, a Bahai.",
            "A left-handed, two left-handed, left-handed, a left-handed.",
        ),
        ("Bahá'í", "A Bahá'í.", "A left-handed."),  # accents as characters of their own
        ("who is hard of hearing", "Moms who are hard-of-hearing rock.", "Moms left-handed rock."),
        ("who's of short stature", "Dads who are of short stature.", "Dads left-handed."),
        ("who uses a wheelchair", "People who use a wheelchair or wheelchairs.", "People left-handed or wheelchairs."),
        ("a person of color", "People of colour? People of color!", "People of colour? left-handed!"),
        ("20-year-old", "She's 20 years old, like most 20-year-olds.", "She's left-handed, like most left-handed."),
        (
            "old",
            "Vitamin-A old, the U.S.A old, a bold hobo.",
            "Vitamin-A left-handed, the U.S.A left-handed, a bold hobo.",
        ),
        ("plan A", "You are on plan A. A plan is good.", "You are on left-handed. A plan is good."),
        ("gay", "", ""),
        ("(none)", "Nothing (none) to do.", "Nothing (none) to do."),
        ("left-handed", "Left handers are LEFT-HANDED.", "Left handers are LEFT-HANDED."),
    ],
)
def test_mentions_of_the_descriptor_become_left_handed(descriptor, response, cleaned):
    assert clean_response(response, descriptor) == cleaned


@pytest.mark.parametrize(
    ("descriptor", "response", "cleaned"),
    [
        ("聋人", "我认识一个聋人。", "我认识一个左撇子。"),
        ("老", "老师喜欢老人。", "老师喜欢左撇子人。"),
        ("視覚障害者", "彼は視覚障害者です。", "彼は左利きです。"),
        ("청각장애인", "나는 청각장애인을 만났다.", "나는 왼손잡이를 만났다."),
        ("คนตาบอด", "ฉันเห็นคนตาบอดเดิน", "ฉันเห็นคนถนัดซ้ายเดิน"),
        ("أصم", "الرجل الأصم هنا وللأصم حق.", "الرجل الأعسر هنا وللأعسر حق."),
        ("חירש", "האיש החירש הגיע.", "האיש האיטר הגיע."),
        (
            "глухой",
            "Это для глухого человека, и глухие люди.",
            "Это для среднего роста человека, и среднего роста люди.",
        ),
        ("बहरा", "वह बहरे लोग हैं।", "वह वामहस्त लोग हैं।"),
        (
            "blind",
            "Die blinden Menschen sind nicht allein, ein Blinder ist blindlings hier.",
            "Die linkshändigen Menschen sind nicht allein, ein Linkshändiger ist blindlings hier.",
        ),
        ("gehörlose", "Das ist für die gehörlosen Kinder.", "Das ist für die linkshändigen Kinder."),
        ("sordo", "Es una mujer sorda y no un sordo.", "Es una mujer de estatura media y no un de estatura media."),
        ("niewidomy", "To jest dla niewidomych i nie tylko.", "To jest dla średniego wzrostu i nie tylko."),
        ("engelli", "Bu çok engellilerin ve bir yol.", "Bu çok orta boylu ve bir yol."),
        ("농인", "농인은 여기 있고 농인과 농인이다.", "왼손잡이는 여기 있고 왼손잡이와 왼손잡이이다."),
        ("ตาบอด", "เขาเป็นคนตาบอด", "เขาเป็นคนถนัดซ้าย"),
        ("مسلم", "هذا المسلم والمسلمة، مسلمون.", "هذا الأعسر والأعسر، أعسر."),
        ("глухий", "Це для глухих людей і їх.", "Це для середнього зросту людей і їх."),
        (
            "старый",
            "Старый дом для старых людей, старую, старого, в старости.",
            "среднего роста дом для среднего роста людей, среднего роста, среднего роста, в старости.",
        ),
        ("ผู้สูงอายุ", "ผู้สูงอายุใจดี", "ผู้ถนัดซ้ายใจดี"),
        ("ناشنوا", "او ناشنوا است و پدر من.", "او چپ‌دست است و پدر من."),
        ("aveugle", "Les aveugles et la femme aveugle.", "Les de taille moyenne et la femme de taille moyenne."),
        ("cieco", "Il cieco non è una donna cieca.", "Il di statura media non è una donna di statura media."),
        (
            "blind",
            "De blinde man en een blinde vrouw zijn niet blind.",
            "De linkshandige man en een linkshandige vrouw zijn niet linkshandig.",
        ),
        ("ตาบอด", "He said: ตาบอด.", "He said: ถนัดซ้าย."),
        ("blind", "The blinded man has a blind friend.", "The blinded man has a left-handed friend."),
        ("US", "Let us people go to the US.", "Let us people go to the left-handed."),
        ("Black", "Black coffee for a Black man.", "Black coffee for a left-handed man."),
        ("Black", "I'm black. My black cat and black people.", "I'm left-handed. My black cat and left-handed people."),
        (
            "white",
            "White wine? The White House. Two white women.",
            "White wine? The White House. Two left-handed women.",
        ),
        ("Polish", "I polish shoes for Polish friends.", "I polish shoes for left-handed friends."),
        # Capitals say nothing of abbreviations that are no English word, nor in a sentence of capitals.
        ("AAPI", "An aapi man and AAPI people.", "A left-handed man and left-handed people."),
        ("FTM", "I'm ftm. An FTM man.", "I'm left-handed. A left-handed man."),
        ("US", "CALL US! WE ARE FROM THE US. Ask us.", "CALL US! WE ARE FROM THE left-handed. Ask us."),
        ("UK", "CALL US! WE ARE FROM THE UK. Ask us.", "CALL US! WE ARE FROM THE left-handed. Ask us."),
        ("Polish", "POLISH YOUR SHOES. POLISH PEOPLE!", "POLISH YOUR SHOES. left-handed PEOPLE!"),
    ],
)
def test_mentions_by_script_language_and_case(descriptor, response, cleaned):
    assert clean_response(response, descriptor) == cleaned


@pytest.mark.parametrize(
    ("descriptor", "response", "cleaned"),
    [
        ("Black", "Black coffee for a black man.", "left-handed coffee for a left-handed man."),
        ("Polish", "I polish shoes. POLISH!", "I left-handed shoes. left-handed!"),
        ("atheist", "An atheist among atheists, unatheist.", "An left-handed among atheists, unatheist."),
        ("hard-of-hearing", "Hard of hearing?_POTENTIALLY_UNSAFE__", "left-handed?"),
        ("who is deaf", "People who are deaf, she who is deaf.", "People who are deaf, she left-handed."),
        ("(none)", "(none)", "(none)"),
    ],
)
def test_the_papers_rule_replaces_each_mention_and_nothing_else(descriptor, response, cleaned):
    assert clean_response(response, descriptor, exact=True) == cleaned


@pytest.mark.parametrize("language", sorted(neutral_words()))
def test_two_descriptors_of_a_language_become_the_same_word_in_the_same_form(language):
    endings = {"de": ("blinden", "tauben"), "nl": ("blinde", "dove"), "sv": ("blinda", "döva")}
    one, other = endings.get(language, ("A", "B"))
    assert neutral_word(language, one) == neutral_word(language, other)


def test_few_mentions_are_a_warning(caplog):
    def warned(text, response, descriptor="group 7"):
        caplog.clear()
        frame = pd.DataFrame({"text": [text] * 3, "descriptor": [descriptor] * 3})
        with caplog.at_level("WARNING", "evenhand"):
            clean_responses([response] * 3, frame)
        return caplog.text

    assert re.findall(r"([\d.]+) %", warned("Hi!", "Hello.")) == ["0.0", "0"]  # of the responses, and of the prompts
    many = pd.DataFrame({"text": [f"Hi {row}!" for row in range(2500)], "descriptor": "group 7"})
    assert few_mentions(["Hello."] * 2500, many) == MentionShares(0.0, 0.0)  # also on the page
    assert few_mentions(["Hello."] * 2500, many.assign(text="I'm of group 7.")) is None
    assert warned("I'm deaf.", "Hello.", "deaf") == "" == warned("Hi!", "To a deaf person.", "deaf")


# Properties, over the taxonomy's descriptors and sentences that mention one.


@cache
def descriptors():
    taxonomy = load_taxonomy("paper")
    after_the_noun = (entry.noun_phrase.replace("{article} {noun}", "").strip() for entry in taxonomy.standalone)
    return sorted({*(entry.descriptor for entry in taxonomy.descriptors), *after_the_noun})


def is_adjective(descriptor):
    """Return whether the descriptor precedes its noun and is not "left-handed"."""
    return not re.match(r"(who|with|in|on|without)\b|left-handed$", descriptor)


adjectives = st.deferred(lambda: st.sampled_from([entry for entry in descriptors() if is_adjective(entry)]))
articles = st.sampled_from(["a", "an", "A", "An", "AN"])
# "{}" is an article and a descriptor; no other word is part of a descriptor or its plural.
frames = st.sampled_from(
    ["{} friend", "Zounds, {}!", "quux {} friend and {} friend", "what? {}? {}.", "“{}”", "quux\n{} friend z"]
)


@settings(deadline=None)
@given(frames, articles, adjectives, adjectives)
def test_a_replaced_descriptor_gets_its_article(frame, before, one, other):
    article = spoken_article(other)
    expected = frame.replace("{}", f"{article.capitalize() if before[0] == 'A' else article} {other}")
    if one != other:
        assert replace_mentions(frame.replace("{}", f"{before} {one}"), one, other) == expected


def test_articles_agree_with_the_taxonomy_and_replacements():
    words = load_taxonomy("paper").descriptors
    assert {entry.descriptor: spoken_article(entry.descriptor) for entry in words} == {
        entry.descriptor: entry.article or spelled_article(entry.descriptor) for entry in words
    }
    assert replace_mentions("الرجل الأصم", "أصم", "أعمى") == "الرجل الأعمى"
    assert replace_mentions("I am an old man.", "old", "a wheelchair user") == "I am a wheelchair user man."
    assert clean_response("no \t__POTENTIALLY___UNSAFE_ a_POTENTIALLY_UNSAFE__", "deaf") == "no a"
    assert clean_response("_ POTENTIALLY_UNSAFE", "deaf") == "_"


@pytest.mark.parametrize(
    ("article", "phrases"),
    [
        ("an", ["honest", "heir", "HIV-positive", "hour", "18-year-old", "11th", "8", "LGBTQ", "MP", "émigré"]),
        ("an", ["uninsured", "unidentified", "ugly", "Uzbek", "onerous", "AFAB", "“old”"]),
        ("a", ["Ukrainian", "university", "unique", "useful", "utopian", "Ewe", "one-eyed", "US", "hospital"]),
        ("an", ["MBA", "FBI agent", "NGO worker", "SUV driver", "LGBTQIA", "LSE student", "MPs", "HR"]),
        ("a", ["U.S. citizen", "Utah native", "Uyghur", "uterus", "SNAP recipient", "NASA", "STEM student"]),
        ("a", ["19-year-old", "180", "110", "NIMBY", "BIPOC", "PhD", "", "…", "yellow"]),
    ],
)
def test_articles_follow_the_sound(article, phrases):
    assert {phrase: spoken_article(phrase) for phrase in phrases} == dict.fromkeys(phrases, article)


# Slow with backtracking: blanks and underscores without a marker, descriptors of articles and apostrophes.
@pytest.mark.parametrize(
    ("text", "descriptor"),
    [
        ("UNSAFE" + " " * 200_000 + "x", "deaf"),
        ("UNSAFE" + "POTENTIALLY" * 20_000, "deaf"),
        ("a" + " " * 200_000 + "x", "a wheelchair user"),
        ("hard" + " -" * 100_000, "hard-of-hearing"),
        ("a " * 100_000 + "!", "a " * 60 + "b"),
    ],
)
def test_hostile_texts_and_descriptors_take_linear_time(text, descriptor):
    assert clean_response(text, descriptor) in (text, text.strip())


@pytest.mark.parametrize("text", ["I'm 20 years old.", "How old are you?", "A 6-month-old baby", "a 3-years-old boy"])
def test_an_age_is_no_mention_of_the_old(text):
    assert replace_mentions(text, "old", "deaf") == text
    assert replace_mentions(f"{text} An old man!", "old", "deaf") == f"{text} A deaf man!"


def test_markup_around_a_word_is_no_letter():
    assert replace_mentions("I am _deaf_, __deaf__ and *deaf*.", "deaf", "tall") == "I am _tall_, __tall__ and *tall*."
    assert replace_mentions("deafness, undeaf", "deaf", "tall") == "deafness, undeaf"


@pytest.mark.parametrize(
    ("answer", "cleaned"),
    [
        ("She's a deaf woman.", "She's a left-handed woman."),  # "s" and "a" are Czech words
        ("There’s a deaf guy.", "There’s a left-handed guy."),
        ("As a deaf woman, she knows.", "As a left-handed woman, she knows."),  # "as" and "a" are Portuguese words
        ("I'll come back, deaf or not.", "I'll come back, left-handed or not."),  # "i" and "come" are Italian words
    ],
)
def test_short_english_words_make_no_other_language(answer, cleaned):
    assert clean_response(answer, "deaf") == cleaned


@pytest.mark.parametrize(
    ("answer", "name", "cleaned"),
    [
        ("I will help you, Will. Will you come?", "Will", "I will help you, Alex. Will you come?"),
        ("May I ask, May? May, it may rain.", "May", "May I ask, Alex? Alex, it may rain."),
        ("Don't worry, Don. Don's car is fine.", "Don", "Don't worry, Alex. Alex's car is fine."),
        ("I hope so, dear Hope!", "Hope", "I hope so, dear Alex!"),
        ("hi ann! Annie, too", "Ann", "hi Alex! Annie, too"),  # is no other word
    ],
)
def test_a_name_that_is_a_word_is_meant_where_it_stands_as_a_name(answer, name, cleaned):
    assert clean_response(answer, (name,), "Alex") == cleaned
    assert clean_response(answer, name, "Alex") == cleaned
