// What the page itself says. What the agent says comes in the language that it was spoken to.

const TEXTS = {
  en: {
    title: "Meeting rooms", chat: "Chat", language: "中文", language_label: "页面改用中文",
    anew: "New conversation", n_anew_begun: "A new conversation was begun in another tab.",
    hint: "Say what you need: “a room for 8 tomorrow at 2pm for an hour”.",
    label: "Message", label_answer: "Your answer", label_pick: "Answer above, or in words",
    send: "Send", stop: "Stop", first: "Answer the question above first.",
    connecting: "connecting…", live: "connected", waiting: "reconnecting in {n} s",
    offline: "offline", stopped: "not connected", again: "Connect",
    edit: "Edit", remove: "Remove",
    on_its_way: "sending…", held: "will be sent when the connection is back",
    queued: "received, will be read next",
    working: "working…", tool: "{name}…",
    you: "You", agent: "Agent", earlier: "Earlier messages ({n})",
    yes: "Yes", no: "No", approve: "Approve", reject: "Reject", go_on: "Continue",
    answer: "Answer", answer_json: "Your answer: JSON, or plain text", note: "A note, if you like",
    room: "Room", when: "When", people: "People", holds: "holds {n}",
    until: "can be answered until {when}", chosen: "Your choice: {what}",
    q_sent: "your answer is on its way", q_answered: "answered", q_expired: "too late: nobody answered in time",
    q_closed: "not asked any more",
    phase_COLLECTING_SLOTS: "What do you need?", phase_AWAITING_SELECTION: "Pick a room",
    phase_CONFIRMING: "Confirm", phase_BOOKED: "Booked",
    n_cancelled: "Called off.", n_retry: "That did not work; it is tried again.",
    n_question_expired: "Nobody answered in time; the question is closed.",
    n_dropped: "The message was set aside by an operator.", n_quarantined: "The agent failed several times; an operator has to look at it.",
    n_turn_dead: "The agent failed at this and gave up.", n_turn_in_doubt: "It is not known whether something was done; a person has to look at it.",
    n_turn_incompatible: "The agent was changed meanwhile and can't go on for now.", n_turn_refused: "This was not taken.",
    n_retracted: "The agent had to start over; this is how things stand.",
    n_gone: "You were away for long; this is how things stand.",
    e_already_answered: "Somebody answered this already.", e_expired: "Too late: the question has expired.",
    e_stale_question: "This is not asked any more.", e_no_question: "This is not asked any more.",
    e_finished: "This is over already.", e_wrong_shape: "That does not fit the question.",
    e_question_open: "A question has come in between. Read it, then send again.",
    e_message_conflict: "This was sent before with other words.", e_forbidden: "Your key does not allow this.",
    e_too_large: "That is too long.", e_rate_limited: "Too much at once; it is sent in a moment.",
    e_unavailable: "The fleet can't be reached just now; it is tried again.", e_outcome_unknown: "The fleet can't be reached just now; it is tried again.",
    n_unknown_session: "That conversation is not there any more; this is a new one.",
    e_unknown_graph: "There is no agent “{graph}” here.", e_no_init: "The connection was too slow.",
    signin: "Sign in", signin_why: "This key is not valid, or not any more.",
    signin_fresh: "You were away for long. Please sign in again.",
    token: "Access key or token", signin_go: "Continue",
    comma: ", ", projector: "projector", whiteboard: "whiteboard", video: "video", tv: "TV",
  },
  zh: {
    title: "会议室预订", chat: "对话", language: "English", language_label: "Show this page in English",
    anew: "新对话", n_anew_begun: "另一个标签页开始了新的对话。",
    hint: "请说出您的需要，例如：“明天下午2点8人会议室”。",
    label: "消息", label_answer: "您的回答", label_pick: "请在上方回答，或直接输入",
    send: "发送", stop: "停止", first: "请先回答上面的问题。",
    connecting: "正在连接…", live: "已连接", waiting: "{n} 秒后重新连接",
    offline: "离线", stopped: "未连接", again: "连接",
    edit: "修改", remove: "移除",
    on_its_way: "正在发送…", held: "恢复连接后发送",
    queued: "已收到，稍后处理",
    working: "正在处理…", tool: "{name}…",
    you: "您", agent: "助手", earlier: "更早的消息（{n}）",
    yes: "是", no: "否", approve: "批准", reject: "拒绝", go_on: "继续",
    answer: "回答", answer_json: "您的回答：JSON 或文字", note: "备注（可选）",
    room: "会议室", when: "时间", people: "人数", holds: "可容纳 {n} 人",
    until: "请在 {when} 之前回答", chosen: "您的选择：{what}",
    q_sent: "正在提交您的回答", q_answered: "已回答", q_expired: "已过期：没有人及时回答",
    q_closed: "此问题已关闭",
    phase_COLLECTING_SLOTS: "了解需求", phase_AWAITING_SELECTION: "选择会议室",
    phase_CONFIRMING: "等待确认", phase_BOOKED: "已预订",
    n_cancelled: "已取消。", n_retry: "没有成功，正在重试。",
    n_question_expired: "没有人及时回答，问题已关闭。",
    n_dropped: "管理员已搁置这条消息。", n_quarantined: "助手多次失败，需要管理员处理。",
    n_turn_dead: "助手未能完成，已放弃。", n_turn_in_doubt: "不确定是否已执行，需要人工核实。",
    n_turn_incompatible: "助手已更新，暂时无法继续。", n_turn_refused: "这条消息未被接受。",
    n_retracted: "助手重新开始了；以下是目前的情况。",
    n_gone: "您离开了一段时间；以下是目前的情况。",
    e_already_answered: "已经有人回答了。", e_expired: "太晚了：问题已过期。",
    e_stale_question: "此问题已关闭。", e_no_question: "此问题已关闭。",
    e_finished: "已经结束了。", e_wrong_shape: "这个回答不符合问题的要求。",
    e_question_open: "刚刚出现了一个问题。请先查看，再发送。",
    e_message_conflict: "这条消息之前已用其他内容发送过。", e_forbidden: "您的密钥没有此权限。",
    e_too_large: "内容太长。", e_rate_limited: "发送过于频繁，稍后自动发送。",
    e_unavailable: "暂时无法连接，正在重试。", e_outcome_unknown: "暂时无法连接，正在重试。",
    n_unknown_session: "之前的对话已不存在；这是新的对话。",
    e_unknown_graph: "这里没有名为“{graph}”的助手。", e_no_init: "连接太慢。",
    signin: "登录", signin_why: "密钥无效或已失效。",
    signin_fresh: "您离开较久，请重新登录。",
    token: "访问密钥或令牌", signin_go: "继续",
    comma: "、", projector: "投影", whiteboard: "白板", video: "视频会议", tv: "电视",
  },
};

let language = "en";

export function setLanguage(name) { language = TEXTS[name] ? name : "en"; }

export function getLanguage() { return language; }

// The browser's: Chinese where it comes before English.
export function preferred(languages) {
  return languages.map((l) => l.slice(0, 2).toLowerCase()).find((l) => TEXTS[l]) ?? "en";
}

export function has(name) { return name in TEXTS[language]; }

export function t(name, fields = {}) {
  const found = TEXTS[language][name] ?? name;
  return found.replace(/\{(\w+)\}/g, (_, field) => fields[field] ?? "");
}

const WHOLE = {weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23"};

// A span as it is on the wall of the rooms, wherever the reader is.
export function span({start, end}) {
  const [from, to] = [wall(start), wall(end)];
  if (!from || !to) return `${start} – ${end}`;
  const format = new Intl.DateTimeFormat(locale(), {...WHOLE, timeZone: "UTC"});
  return format.formatRange(from, to);
}

// A moment, in the reader's own time.
export function moment(at) {
  const found = new Date(at);
  return Number.isNaN(found.valueOf()) ? String(at) : new Intl.DateTimeFormat(locale(), WHOLE).format(found);
}

function wall(iso) {
  const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d)/.exec(iso ?? "");
  return found && new Date(`${found[1]}Z`);
}

function locale() { return language === "zh" ? "zh-CN" : "en-GB"; }
