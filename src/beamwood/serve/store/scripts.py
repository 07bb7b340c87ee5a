"""Lua scripts that Redis runs atomically; each takes the key prefix, and owners in the form of `owner_text`.

Keys: `seq`, the last sequence number; `key:IDENTITY`, the content; `events:OWNER`, the history; `spent:OWNER`, a sorted
set of the identities of events that retention removed; `owners`; `last`, the last sequence number by owner; `erased`, a
sorted set of owners by time; `merged:SESSION`, the time of its merge; `answer:REQUEST`; `hit:REQUEST`; `answers:OWNER`,
a sorted set of the requests by the time in milliseconds at which they expire. A member of a history is the sequence
number (16 digits), the identity (16 bytes) and the body. An answer is the length of its owner in bytes, a space, the
owner and the body.
"""

__all__ = ["SCRIPTS"]

_ADD = """
local prefix = KEYS[1]
local function add(owner, time, rest)
  local seq = redis.call('incr', prefix .. 'seq')
  redis.call('zadd', prefix .. 'events:' .. owner, time, string.format('%016d', seq) .. rest)
  redis.call('sadd', prefix .. 'owners', owner)
  redis.call('hset', prefix .. 'last', owner, seq)
end
local function forget(identity)
  redis.call('del', prefix .. 'key:' .. identity)
end
local function gone_at(owner)
  local erased = redis.call('zscore', prefix .. 'erased', owner)
  local merged = redis.call('get', prefix .. 'merged:' .. owner)
  if erased and merged then return tonumber(erased) > tonumber(merged) and erased or merged end
  return erased or merged
end
local function later(latest, now)
  if not latest or tonumber(now) > tonumber(latest) then return now end
  local step = 1e-6
  while tonumber(latest) + step <= tonumber(latest) do step = 2 * step end
  return string.format('%.17g', tonumber(latest) + step)
end
local function drop(owner)
  redis.call('del', prefix .. 'events:' .. owner)
  redis.call('srem', prefix .. 'owners', owner)
  redis.call('hdel', prefix .. 'last', owner)
end
"""

# Arguments: identity, content, owner, time, 1 if a client gave it, and body of each event. Returns seq and the places
# of new events, or -1 and the place of the event whose key was reused with a different body.
APPEND = (
    _ADD
    + """
local fresh, seen = {}, {}
for i = 1, #ARGV, 6 do
  local known = redis.call('get', prefix .. 'key:' .. ARGV[i]) or seen[ARGV[i]]
  if not known then
    seen[ARGV[i]] = ARGV[i + 1]
    fresh[#fresh + 1] = i
  elseif known ~= ARGV[i + 1] then
    return {-1, (i - 1) / 6}
  end
end
local told = {0}
for _, i in ipairs(fresh) do
  redis.call('set', prefix .. 'key:' .. ARGV[i], ARGV[i + 1])
  local time = ARGV[i + 3]
  if ARGV[i + 4] == '0' then
    local latest = redis.call('zrange', prefix .. 'events:' .. ARGV[i + 2], -1, -1, 'withscores')[2]
    if latest and tonumber(latest) > tonumber(time) then time = latest end
  end
  add(ARGV[i + 2], time, ARGV[i] .. ARGV[i + 5])
  told[#told + 1] = (i - 1) / 6
end
told[1] = tonumber(redis.call('get', prefix .. 'seq') or 0)
return told
"""
)

# Arguments: owner, current time. Returns the number of events, and the time of the tombstone, above all others.
ERASE = (
    _ADD
    + """
local members = redis.call('zrange', prefix .. 'events:' .. ARGV[1], 0, -1)
for _, member in ipairs(members) do forget(string.sub(member, 17, 32)) end
for _, identity in ipairs(redis.call('zrange', prefix .. 'spent:' .. ARGV[1], 0, -1)) do forget(identity) end
redis.call('del', prefix .. 'spent:' .. ARGV[1])
drop(ARGV[1])
local at = later(redis.call('zrevrange', prefix .. 'erased', 0, 0, 'withscores')[2], ARGV[2])
at = later(gone_at(ARGV[1]), at)
redis.call('zadd', prefix .. 'erased', at, ARGV[1])
for _, id in ipairs(redis.call('zrange', prefix .. 'answers:' .. ARGV[1], 0, -1)) do
  redis.call('del', prefix .. 'answer:' .. id, prefix .. 'hit:' .. id)
end
redis.call('del', prefix .. 'answers:' .. ARGV[1])
return {#members, at}
"""
)

# Arguments: owner, lower bound of times, maximum of events, highest seq, and for some types the number of the latest
# events among which they are looked for, and the types. Returns the last seq and the time of the tombstone or the
# merge, each empty if none, then each member with its time, latest first.
HISTORY = (
    _ADD
    + """
local most, highest, left, asked = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] and tonumber(ARGV[5]) or math.huge, {}
for i = 6, #ARGV do asked[ARGV[i]] = true end
local found = {
  redis.call('hget', prefix .. 'last', ARGV[1]) or '', gone_at(ARGV[1]) or ''}
local start, count, step = 0, 0, math.min(most, 1000)
while count < most and left > 0 do
  local some = redis.call(
    'zrevrangebyscore', prefix .. 'events:' .. ARGV[1], '+inf', ARGV[2], 'withscores', 'limit', start, step)
  for i = 1, #some, 2 do
    local member = some[i]
    local taken = left > 0 and tonumber(string.sub(member, 1, 16)) <= highest
    if taken then left = left - 1 end
    if taken and ARGV[5] then taken = asked[cjson.decode(string.sub(member, 33))[2]] end
    if taken and count < most then
      count = count + 1
      found[#found + 1], found[#found + 2] = member, some[i + 1]
    end
  end
  if #some < 2 * step then break end
  start, step = start + step, math.min(2 * step, 1000)
end
return found
"""
)

# Arguments: request, name of the tally. Returns 1 if the answer is stored and this is its first hit.
HIT = """
local prefix = KEYS[1]
local left = redis.call('pttl', prefix .. 'answer:' .. ARGV[1])
if left < 1 or not redis.call('set', prefix .. 'hit:' .. ARGV[1], '1', 'NX', 'PX', left) then return 0 end
redis.call('hincrby', prefix .. 'tallies', ARGV[2], 1)
return 1
"""

_OWNED = """
local function own(owner, id, milliseconds)
  local owned, time = prefix .. 'answers:' .. owner, redis.call('time')
  local now = 1000 * time[1] + math.floor(time[2] / 1000)
  redis.call('zremrangebyscore', owned, '-inf', string.format('(%.0f', now))
  redis.call('zadd', owned, string.format('%.0f', now + milliseconds), id)
  if redis.call('pttl', owned) < milliseconds then redis.call('pexpire', owned, milliseconds) end
end
"""

# Arguments: request, owner (empty: unknown), the owner's tombstone or merge when it was given (empty: none), body,
# expiry in seconds, name of the tally. Returns 1 if it is new.
NOTE = (
    _ADD
    + _OWNED
    + """
local gone = gone_at(ARGV[2])
if gone and (ARGV[3] == '' or tonumber(gone) > tonumber(ARGV[3])) then return 0 end
local answer, seconds = #ARGV[2] .. ' ' .. ARGV[2] .. ARGV[4], tonumber(ARGV[5])
if not redis.call('set', prefix .. 'answer:' .. ARGV[1], answer, 'NX', 'EX', seconds) then return 0 end
redis.call('hincrby', prefix .. 'tallies', ARGV[6], 1)
if ARGV[2] ~= '' then own(ARGV[2], ARGV[1], 1000 * seconds) end
return 1
"""
)

# Arguments: session, user, current time, seconds for which the merge is known. Returns the number of moved events; they
# move in the order of seq.
MERGE = (
    _ADD
    + _OWNED
    + """
local found, moved = redis.call('zrange', prefix .. 'events:' .. ARGV[1], 0, -1, 'withscores'), {}
for i = 1, #found, 2 do moved[#moved + 1] = {found[i], found[i + 1]} end
table.sort(moved, function(a, b) return a[1] < b[1] end)
for _, each in ipairs(moved) do add(ARGV[2], each[2], string.sub(each[1], 17)) end
drop(ARGV[1])
local spent, whose = prefix .. 'spent:' .. ARGV[1], prefix .. 'spent:' .. ARGV[2]
local longest = math.max(redis.call('pttl', spent), redis.call('pttl', whose))
if redis.call('zunionstore', whose, 2, whose, spent) > 0 then redis.call('pexpire', whose, longest) end
redis.call('del', spent)
for _, id in ipairs(redis.call('zrange', prefix .. 'answers:' .. ARGV[1], 0, -1)) do
  local name = prefix .. 'answer:' .. id
  local answer, left = redis.call('get', name), redis.call('pttl', name)
  if answer and left > 0 then
    local body = string.sub(answer, #(#ARGV[1] .. ' ') + #ARGV[1] + 1)
    redis.call('set', name, #ARGV[2] .. ' ' .. ARGV[2] .. body, 'PX', left)
    own(ARGV[2], id, left)
  end
end
redis.call('del', prefix .. 'answers:' .. ARGV[1])
redis.call('set', prefix .. 'merged:' .. ARGV[1], later(gone_at(ARGV[1]), ARGV[3]), 'EX', ARGV[4])
return #moved
"""
)

# Arguments: name and new value of a document; 1 and its expected value, or 0 and empty if it must not exist; name and
# value of each further document. Returns 1 if the expectation held.
REPLACE = """
local documents = KEYS[1] .. 'documents'
if (redis.call('hget', documents, ARGV[1]) or nil) ~= (ARGV[3] == '1' and ARGV[4] or nil) then return 0 end
redis.call('hset', documents, ARGV[1], ARGV[2])
for i = 5, #ARGV, 2 do redis.call('hset', documents, ARGV[i], ARGV[i + 1]) end
return 1
"""

# Arguments: owner, oldest time, events to keep (0: all), the time, seconds for which their keys are known, maximum of
# events to delete. Returns the number of deleted events.
TRIM = (
    _ADD
    + """
local name, keep = prefix .. 'events:' .. ARGV[1], tonumber(ARGV[3])
local count = redis.call('zcount', name, '-inf', '(' .. ARGV[2])
if keep > 0 then count = math.max(count, redis.call('zcard', name) - keep) end
count = math.min(count, tonumber(ARGV[6]))
if count == 0 then return 0 end
local spent, last, is_last = prefix .. 'spent:' .. ARGV[1], redis.call('hget', prefix .. 'last', ARGV[1]), false
for _, member in ipairs(redis.call('zrange', name, 0, count - 1)) do
  local identity = string.sub(member, 17, 32)
  redis.call('expire', prefix .. 'key:' .. identity, ARGV[5])
  redis.call('zadd', spent, ARGV[4], identity)
  is_last = is_last or tonumber(string.sub(member, 1, 16)) == tonumber(last)
end
redis.call('zremrangebyrank', name, 0, count - 1)
redis.call('zremrangebyscore', spent, '-inf', '(' .. string.format('%.17g', tonumber(ARGV[4]) - tonumber(ARGV[5])))
redis.call('expire', spent, ARGV[5])
if redis.call('zcard', name) == 0 then
  drop(ARGV[1])
elseif is_last then
  last = 0
  for _, member in ipairs(redis.call('zrange', name, 0, -1)) do
    last = math.max(last, tonumber(string.sub(member, 1, 16)))
  end
  redis.call('hset', prefix .. 'last', ARGV[1], last)
end
return count
"""
)

SCRIPTS = {
    "append": APPEND,
    "erase": ERASE,
    "history": HISTORY,
    "hit": HIT,
    "merge": MERGE,
    "note": NOTE,
    "replace": REPLACE,
    "trim": TRIM,
}
"""The scripts by name."""
