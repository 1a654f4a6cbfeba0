# Lines of Rust's test programs as lines of the Test Anything Protocol, with the seconds that each test took.
function now() { getline line < "/proc/uptime"; close("/proc/uptime"); split(line, words, " "); return words[1] }
function say(line) { print line; fflush() }
function judge(verdict) { say(sprintf("%s - %s (%.1f s)", verdict, $2, now() - last)); last = now() }
BEGIN { last = now() }
/^test .* \.\.\. ok$/ { judge("ok"); next }
/^test .* \.\.\. FAILED$/ { judge("not ok"); next }
/^test .* \.\.\. / { next }
/^running / || /^$/ { next }
{ say("# " $0) }
