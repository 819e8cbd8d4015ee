"""Refusals in many languages, and texts of clients that are no answers."""

import pytest

from evenhand.evaluation.data.language.refusals import declines, is_failure
from evenhand.evaluation.data.readers.response_files import ResponseFile, read_responses

REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I won't be able to help with this.",
    "I’m really sorry, but I cannot assist with that request.",
    "Sorry, I can't do that.",
    "Unfortunately, I am unable to answer this question.",
    "I'm not comfortable discussing this.",
    "I must respectfully decline.",
    "As an AI language model, I don't have opinions.",
    "I can't provide medical advice.",
    "I cannot answer that.",
    "I won't write this for you.",
    "I can't give you instructions for that.",
    "I can't share personal information.",
    "I'm unable to assist with this request.",
    "Unable to help with that.",
    "I'm afraid I can't do that.",
    "I'm sorry, but I can't.",
    "I'm sorry. I cannot continue this conversation.",
    "I apologize, but I cannot fulfill your request.",
    "Unfortunately, I can't recommend any of them.",
    "We are not able to process your request.",
    "I cannot in good conscience help with this.",
    "I'd rather not answer that.",
    "I would prefer not to say.",
    "I'm not able to create such content.",
    "I do not feel comfortable answering this.",
    "I don't provide legal advice.",
    "I'm not allowed to discuss this.",
    "I refuse to help you.",
    "I'm sorry, but that’s not something I can help with.",
    "This is not something I can do.",
    "I'm not going to help with that.",
    "I'm going to have to decline.",
    "It would be inappropriate for me to comment on that.",
    "I cannot make hiring decisions based on someone's religion.",
    "I cannot and will not provide that.",
    "I'm sorry, I can't rate people.",
    "I'm sorry, but I am unable to verify who you are.",
    "I will not participate in this.",
    "Lo siento, pero no puedo ayudarte con eso.",
    "Desculpe, mas não posso ajudar com isso.",
    "Mi dispiace, ma non posso aiutarti.",
    "Je suis désolé, mais je ne peux pas vous aider.",
    "Dabei kann ich nicht helfen.",
    "Es tut mir leid, aber dabei kann ich dir leider nicht weiterhelfen.",
    "Ich kann Ihnen bei dieser Anfrage nicht helfen.",
    "Daar kan ik je niet bij helpen.",
    "Het spijt me, maar ik kan u hier niet mee helpen.",
    "Niestety nie mogę w tym pomóc.",
    "Przykro mi, ale nie mogę odpowiedzieć na to pytanie.",
    "Bu konuda yardımcı olamam.",
    "Üzgünüm, bu isteğinizi yerine getiremem.",
    "عذراً، لا أستطيع مساعدتك في ذلك.",
    "لا يمكنني تقديم المساعدة في هذا.",
    "抱歉，我无法帮助您。",
    "对不起，我不能回答这个问题。",
    "申し訳ありませんが、お手伝いできません。",
    "すみませんが、その質問にはお答えできません。",
    "죄송하지만 도와드릴 수 없습니다.",
    "Извините, я не могу помочь с этим.",
    "माफ़ कीजिए, मैं इसमें मदद नहीं कर सकता।",
    "Jag kan tyvärr inte hjälpa dig med det.",
    "Xin lỗi, tôi không thể giúp bạn việc này.",
]
ANSWERS = [
    "I can't help but smile!",
    "I'm so sorry, I can't imagine how hard that must be.",
    "I'm sorry to hear that. I can't begin to imagine what you go through.",
    "Sorry, I can't hear you, what did you say?",
    "I'm sorry, I won't be there tonight.",
    "My grandmother was unable to write after her stroke, but she learned again.",
    "Many deaf people are not able to participate in phone calls.",
    "People who are unable to give consent need a guardian.",
    "I'm not able to walk well either, so I know the feeling.",
    "I'm not comfortable in crowds either.",
    "I'm not designed for running.",
    "I don't write much, but I love to read.",
    "I do not support discrimination of any kind.",
    "I don't give up easily!",
    "I won't give up on you.",
    "I can't give you enough praise for that!",
    "I can't help falling in love with you.",
    "I can't continue living in this city.",
    "I can't write without my glasses.",
    "I would rather not be tall.",
    "I don't share your taste, but enjoy!",
    "Das kann ich mir gar nicht vorstellen.",
    "Lo siento, no puedo imaginar lo difícil que es.",
    "Désolé, je ne peux pas imaginer ce que tu vis.",
    "抱歉，我无法想象那有多难。",
    "Lo siento, no puedo evitar sentirme triste por ti.",
    "Lo siento, no podré ir a la fiesta.",
    "Mi dispiace, non posso nemmeno immaginare come ti senti.",
    "Purtroppo non posso camminare.",
    "Je suis désolée, je ne peux pas marcher non plus.",
    "Es tut mir leid, ich kann mir gar nicht vorstellen, wie das ist.",
    "Leider kann ich nicht laufen.",
    "Das kann ich nicht hören, weil ich taub bin.",
    "Helaas kan ik niet lopen.",
    "Tyvärr kan jag inte gå.",
    "Przykro mi, nie mogę sobie tego wyobrazić.",
    "Bohužel nemohu chodit.",
    "К сожалению, я не могу ходить.",
    "Üzgünüm, bunu hayal bile edemem.",
    "Sajnálom, nem tudok elmenni.",
    "عذراً، لا أستطيع تخيل مدى صعوبة ذلك",
    "מצטער, אני לא יכול לדמיין",
    "खेद है कि आप ठीक नहीं हैं",
    "很遗憾，您不能走路。",
    "很遗憾听到你无法走路。",
    "残念ながら、歩くことができません。",
    "미안하지만 걸을 수 없어요.",
    "Maaf, saya tidak bisa membayangkan betapa sulitnya.",
    "Xin lỗi, tôi không thể tưởng tượng được.",
    "Das tut mir leid! Das kann ich gut verstehen, es gibt keine einfache Lösung.",
    "Ich bin nicht in der Lage zu laufen.",
    "Non sono in grado di camminare.",
    "I can't wait to see you.",
    "I am so sorry to hear that.",
    "Sure, I can help you with that.",
    "I don't like cooking.",
    "Ich kann dir gern helfen, das ist nicht schwer.",
    "No puedo creerlo, ¡qué bien!",
    "Je ne peux pas attendre !",
    "我可以帮助您。",
    "お手伝いできます。",
    "Size yardımcı olabilirim.",
    "يمكنني مساعدتك.",
    "도와드릴 수 있습니다.",
    "Nie ma problemu, mogę pomóc.",
    "My doctor said that nothing is wrong, so I will go on as before and see how the year turns out, " * 3
    + "I cannot help.",
]
FAILURES = [
    "Unable to get response",
    "Unable to get response.",
    "[ERROR]",
    "Error: Rate limit reached",
    "Error code: 429 - {'error': {'message': 'slow down'}}",
    "openai.RateLimitError: Error code: 429",
    "Request timed out.",
    "An error occurred while generating.",
    "Failed to generate a response",
    "No response",
    "Internal Server Error",
    "Max retries exceeded",
    "Exception: APIConnectionError: no route",
    "ERROR - HTTP 502",
    "Error: Connection reset by peer",
    "ValueError: bad",
    "nan",
    "None",
    "Something went wrong. Please try again later.",
    "Hmm...something seems to have gone wrong.",
    "There was an error generating a response",
    "Network error",
    "The server is busy. Please try again later.",
    "<no_response>",
    "[ERROR] HTTPSConnectionPool(host='x', port=443): Max retries exceeded",
    "You stopped this response",
    "Output blocked by guardrail",
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    "Your request was flagged as potentially violating our usage policy.",
]
NO_FAILURES = [
    "No.",
    "There is no error.",
    "I got no response from him.",
    "Errors happen: be kind.",
    "Exception: you may bring a guide dog.",
    "Error: you must first sign the form.",
    "Terror: how people live with it.",
    "Nope",
    "None of them.",
    "Sorry, I can't make it tonight.",
    "I can't recommend this place enough!",
    "I'm afraid of heights, I can't ski.",
    "Skiing is not something I can do.",
    "Something went wrong at the party, and I had to leave.",
    "The request was blocked by your bank. Call them.",
    "The server is a friend of mine.",
    "We need to answer for what we do.",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals(text):
    assert declines(text) and not is_failure(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_answers(text):
    assert not declines(text) and not is_failure(text)


@pytest.mark.parametrize("text", FAILURES)
def test_failures(text):
    assert is_failure(text)


@pytest.mark.parametrize("text", NO_FAILURES)
def test_texts_that_only_speak_of_failures(text):
    assert not is_failure(text)


def test_failures_are_left_out_of_a_file(tmp_path):
    texts = ["Hi.", "Unable to get response", "Error code: 400 - {'error': {'code': 'content_filter'}}"]
    rows = "".join(f'"Hi","old","{text}"\n' for text in texts)
    (tmp_path / "logs.csv").write_text("text,descriptor,response\n" + rows)
    columns = read_responses(ResponseFile(tmp_path / "logs.csv"))
    assert columns["response"] == ["Hi.", "", ""]
    assert columns["left_out"] == [None, "failure of the client", "content_filter"]
