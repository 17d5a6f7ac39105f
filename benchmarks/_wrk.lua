-- Requests to the REST API for wrk: wrk -s _wrk.lua URL -- KIND FILE SECONDS_AHEAD
-- FILE has what to choose from at random, one a line: ids to read, or names of racks to join.

local threads = {}
local lines = {}
local kind
local ahead_s

function setup(thread)
  table.insert(threads, thread)
  thread:set("number", #threads)
end

function init(args)
  kind = args[1]
  for line in io.lines(args[2]) do
    table.insert(lines, line)
  end
  ahead_s = tonumber(args[3])
  math.randomseed(number)
  created, refused, failed = 0, 0, 0
end

local function any()
  return lines[math.random(#lines)]
end

local function reservation()
  local src, dst = any(), any()
  while dst == src do
    dst = any()
  end
  local start_s = os.time() + 3600 + math.random() * ahead_s
  return string.format(
    '{"src":"%s","dst":"%s","bandwidth_mbps":10,"duration_s":600,"start_unix_s":%.3f}',
    src, dst, start_s
  )
end

local JSON = { ["Content-Type"] = "application/json" }

function request()
  if kind == "healthz" then
    return wrk.format("GET", "/healthz")
  elseif kind == "read" then
    return wrk.format("GET", "/v1/reservations/" .. any())
  elseif kind == "page" then
    return wrk.format("GET", "/v1/reservations?limit=100")
  end
  return wrk.format("POST", "/v1/reservations", JSON, reservation())
end

function response(status)
  if status == 200 or status == 201 then
    created = created + 1
  elseif status == 409 then
    refused = refused + 1
  else
    failed = failed + 1
  end
end

function done(summary, latency)
  local sums = { created = 0, refused = 0, failed = 0 }
  for _, thread in ipairs(threads) do
    for name in pairs(sums) do
      sums[name] = sums[name] + thread:get(name)
    end
  end
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%f,"p99_ms":%f,"worst_ms":%f,"created":%d,"refused":%d,"failed":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3, latency.max / 1e3,
    sums.created, sums.refused,
    sums.failed + errors.connect + errors.read + errors.write + errors.timeout
  ))
end
