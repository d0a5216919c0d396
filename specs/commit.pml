/* The commit protocol of an index, for Spin: every interleaving of three writers, a reader and a lake that changes.
 *
 * What it models is said in index-format.md#commit and refresh.md. A step of a process is one operation of the store or
 * one look at the lake. A writer that dies takes no further step: each state of the search is one in which any of the
 * writers may have died before. One answer of the store may be lost: then the writer is told of an error, or that
 * "something is there", though its version was written.
 *
 *   spin -a commit.pml && cc -O1 -DSAFETY -o pan pan.c && ./pan
 *
 * What must hold is asserted in `committed` and where segments are deleted and searched. With -DRECKLESS the vacuum takes
 * nothing for young: then commits may be lost, and rows still not. With -DMUTANT_<NAME> one line of the protocol is left
 * out or wrong, and an assertion must fail: tests/fuzz/test_model.py has the names and runs them all.
 *
 * The search is short because few states differ. What a process computes by itself is part of the step before or after;
 * it forgets what it does not need any more; what a step alone needs is `hidden`. Spin does not set that back when it
 * tries another branch, so nothing hidden is read after a choice.
 */

#define FILES 2
#define IDS 7
#define SEGMENTS 8
#define VERSIONS 7
#define OLD_VERSION 2            /* versions 1 and 2, and segments 0 to 2, were written long ago */
#define OLD_SEGMENT 2

#ifndef CHANGES
#define CHANGES 1                /* of the lake */
#endif

#define OPTIMIZE 2               /* 0 and 1 refresh the file of that number */
#define RESTORE 3
#define VACUUM 4
#define NONE 15                  /* no segment */

#define NOTHING 0                /* what the file of a refresh needs */
#define ZONES_ONLY 1
#define ID_AND_ZONES 2

#define ZONES(file, state) ((file) * 8 + (state))
#define HAS(set, one) (((set) >> (one)) & 1)

typedef Version {
    byte id[FILES];              /* the fragment of each file; 0 where there is none */
    byte state[FILES];           /* its fingerprint: which state of the file it describes */
    byte segments;               /* a set */
    byte next                    /* next_fragment_id */
};
typedef Segment { byte zones[IDS] };     /* by fragment id, of which file and state its zones are; 0 without zones */

Version versions[VERSIONS];
byte version_there;              /* the set of version files */
byte writer_of[VERSIONS];        /* the random word in each: who wrote it, if its writer was not told */
Segment segments[SEGMENTS];
byte segment_there;
byte num_segments;
byte reserved;                   /* the set of reservations; each is of one id */

byte lake[FILES];                /* the state of each file; 0 where it is gone */
byte num_changes;
bool is_answer_lost;
byte num_relisted;               /* vacuums that have listed the versions again */
bool is_restored;                /* since then an optimize may drop zones that its base took for dead; they are built again */
bool is_excused;                 /* a restore raced a vacuum that took its version for expired: refresh.md#vacuum */

hidden byte i, s, found, was, newest, is_overlap;       /* scratch within a step */
hidden Version following;

/* --- what must hold ------------------------------------------------------------------------------------------------- */

/* The zones of a live fragment are of its file, in its state, and once. */
inline assert_zones(v)
{
    i = 0;
    do
    :: i < FILES ->
        found = 0; s = 0;
        do
        :: s < SEGMENTS ->
            if
            :: v.id[i] && HAS(v.segments, s) && segments[s].zones[v.id[i]] ->
                assert(segments[s].zones[v.id[i]] == ZONES(i, v.state[i]));       /* else rows are lost */
                found++
            :: else
            fi;
            s++
        :: else -> break
        od;
        assert(found <= 1);
        i++
    :: else -> break
    od
}

inline covered(v, file)
{
    found = 0; s = 0;
    do
    :: s < SEGMENTS ->
        if
        :: v.id[file] && HAS(v.segments, s) && segments[s].zones[v.id[file]] -> found = 1
        :: else
        fi;
        s++
    :: else -> break
    od
}

/* Version `newest` was just written on top of the one before. */
inline committed()
{
    assert_zones(versions[newest]);
#ifndef RECKLESS
    is_excused = is_excused || (what == RESTORE && seen != num_relisted);
    assert(HAS(version_there, newest - 1));
    assert((versions[newest].segments & ~segment_there) == 0 || is_excused);
    if
    :: what != RESTORE ->
        i = 0;
        do
        :: i < FILES ->
            assert(versions[newest].id[i] == versions[newest - 1].id[i] || versions[newest - 1].id[i] == 0 ||
                lake[i] != versions[newest - 1].state[i] ||
                versions[newest].state[i] == versions[newest - 1].state[i]);       /* else a commit is lost */
            if
            :: versions[newest].id[i] == versions[newest - 1].id[i] && !is_restored ->
                covered(versions[newest - 1], i);
                was = found;
                covered(versions[newest], i);
                assert(found >= was)
            :: else
            fi;
            i++
        :: else -> break
        od
    :: else -> is_restored = true
    fi
#endif
}

/* --- the store ------------------------------------------------------------------------------------------------------ */

inline find_newest()
{
    newest = VERSIONS - 1;
    do
    :: !HAS(version_there, newest) -> newest--
    :: else -> break
    od
}

inline copy(to, from)
{
    to.id[0] = from.id[0]; to.id[1] = from.id[1];
    to.state[0] = from.state[0]; to.state[1] = from.state[1];
    to.segments = from.segments; to.next = from.next
}

inline forget(one)
{
    one.id[0] = 0; one.id[1] = 0; one.state[0] = 0; one.state[1] = 0; one.segments = 0; one.next = 0
}

/* List, and read the highest; where a vacuum was faster, again. */
inline read_newest()
{
    do
    :: d_step { find_newest(); number = newest };
        if
        :: d_step { HAS(version_there, number) -> copy(current, versions[number]) }; break
        :: !HAS(version_there, number)
        fi
    od
}

#ifdef MUTANT_OVERWRITE
#define CAN_CREATE true
#else
#define CAN_CREATE !HAS(version_there, number + 1)
#endif

#define TAKEN 0
#define DONE 1
#define FAILED 2

/* Create the version after `number` with the content of `following`, if it is absent. */
inline create()
{
    if
    :: CAN_CREATE ->
        d_step {
            newest = number + 1;
            version_there = version_there | (1 << newest);
            copy(versions[newest], following);
            writer_of[newest] = 0;
            committed()
        };
        if
        :: outcome = DONE
        :: !is_answer_lost -> is_answer_lost = true; outcome = TAKEN; writer_of[number + 1] = _pid
        :: !is_answer_lost -> is_answer_lost = true; outcome = FAILED
        fi
    :: else -> outcome = TAKEN
    fi
}

/* --- rebase --------------------------------------------------------------------------------------------------------- */

/* The change of this writer on top of `current`: `following`, or an overlap. */
inline rebase()
{
    is_overlap = false;
    copy(following, current);
    if
    :: removed && following.id[file] == removed -> following.id[file] = 0; following.state[file] = 0
    :: else
    fi;
    if
    :: added ->
        if
        :: current.id[0] == added || current.id[1] == added -> is_overlap = true
        :: else
        fi;
        if
        :: following.id[file] && following.state[file] != state ->
#ifdef MUTANT_NO_FILE_CHECK
            following.id[file] = added; following.state[file] = state
#else
            is_overlap = true
#endif
        :: following.id[file] == 0 -> following.id[file] = added; following.state[file] = state
        :: else
        fi;
        following.next = (current.next > added + 1 -> current.next : added + 1)
    :: else
    fi;
    following.segments = current.segments & ~removed_segments;
    if
    :: segment != NONE ->
#ifndef MUTANT_NO_SEGMENT_CHECK
        s = 0;
        do
        :: s < SEGMENTS ->
            if
            :: HAS(following.segments, s) && !HAS(base_segments, s) ->
                i = 1;
                do
                :: i < IDS ->
                    is_overlap = is_overlap || (segments[s].zones[i] && segments[segment].zones[i]);
                    i++
                :: else -> break
                od
            :: else
            fi;
            s++
        :: else -> break
        od;
#endif
        following.segments = following.segments | (1 << segment)
    :: else
    fi;
    s = 0;
    do                                                   /* segments without a live fragment leave */
    :: s < SEGMENTS ->
        if
        :: HAS(following.segments, s) &&
            !(following.id[0] && segments[s].zones[following.id[0]]) &&
            !(following.id[1] && segments[s].zones[following.id[1]]) ->
            following.segments = following.segments & ~(1 << s)
        :: else
        fi;
        s++
    :: else -> break
    od;
    is_overlap = is_overlap || (following.id[0] == current.id[0] && following.id[1] == current.id[1] &&
        following.segments == current.segments)                                /* nor is there anything to commit */
}

inline delete_written()
{
    if
    :: segment != NONE -> segment_there = segment_there & ~(1 << segment)
    :: else
    fi
}

/* --- writers -------------------------------------------------------------------------------------------------------- */

inline write_segment()
{
    segment = num_segments;
    num_segments++;
    segment_there = segment_there | (1 << segment)
}

/* Of one file: what a look at the lake asks for. */
inline look()
{
    file = what;
    state = lake[file];
    covered(current, file);
    s = 0;
    do                                                   /* zones in a segment that is missing are no zones */
    :: s < SEGMENTS ->
        if
        :: current.id[file] && HAS(current.segments, s) && segments[s].zones[current.id[file]] &&
            !HAS(segment_there, s) -> found = 2
        :: else
        fi;
        s++
    :: else -> break
    od;
    if
    :: current.id[file] && current.state[file] == state && found != 2 ->
        need = (found -> NOTHING : ZONES_ONLY)
    :: else ->
        removed = current.id[file];
        need = (state -> ID_AND_ZONES : NOTHING)
    fi
}

inline reserve()
{
    do
    :: d_step {
            added = IDS;
            do
            :: added > 0 && !HAS(reserved, added - 1) -> added--
            :: else -> break
            od;
            added = (added > current.next -> added : current.next)
        };
        if
        :: d_step { !HAS(reserved, added) -> reserved = reserved | (1 << added) }; break
        :: HAS(reserved, added)
        fi
    od
}

/* Read the file, if it still is what was listed. */
inline write_zones()
{
    if
#ifdef MUTANT_NO_FINGERPRINT
    :: need -> write_segment(); segments[segment].zones[(added -> added : current.id[file])] = ZONES(file, lake[file])
#else
    :: need && lake[file] == state ->
        write_segment(); segments[segment].zones[(added -> added : current.id[file])] = ZONES(file, state)
    :: need && lake[file] != state -> added = 0
#endif
    :: else
    fi;
    need = NOTHING
}

inline merge_segments()
{
    write_segment();
    s = 0;
    do
    :: s < SEGMENTS ->
        if
        :: HAS(current.segments, s) && HAS(segment_there, s) ->
            removed_segments = removed_segments | (1 << s);
            i = 0;
            do
            :: i < FILES ->
                if
                :: current.id[i] && segments[s].zones[current.id[i]] ->
                    segments[segment].zones[current.id[i]] = segments[s].zones[current.id[i]]
                :: else
                fi;
                i++
            :: else -> break
            od
        :: else
        fi;
        s++
    :: else -> break
    od
}

/* A refresh of one file, or an optimize. */
inline change()
{
    if
    :: what < OPTIMIZE ->
        d_step { look() };
        if
        :: need == ID_AND_ZONES -> reserve()
        :: else
        fi
    :: what == OPTIMIZE
    fi;
    atomic {
        base_segments = current.segments;
        d_step {
            if
            :: what == OPTIMIZE -> merge_segments()
            :: else -> write_zones()
            fi
        }
    };
    do
    :: atomic {
            outcome = TAKEN;
            d_step { rebase() };
            if
            :: is_overlap -> delete_written(); break
            :: else
            fi;
            create()
        };
        if
        :: outcome == DONE -> break
        :: outcome == FAILED ->                          /* an error: the version may be there */
            atomic {
                if
#ifdef MUTANT_DELETE_ON_ERROR
                :: true -> delete_written()
#else
                :: !HAS(version_there, number + 1) -> delete_written()
                :: else
#endif
                fi;
                break
            }
        :: outcome == TAKEN ->
            atomic {
                if
#ifndef MUTANT_NO_READ_BACK
                :: HAS(version_there, number + 1) && writer_of[number + 1] == _pid -> break         /* it is our own */
#endif
                :: else ->
#ifdef MUTANT_NO_REBASE
                    number++
#else
                    forget(current)
#endif
                fi
            };
#ifndef MUTANT_NO_REBASE
            read_newest()
#endif
        fi
    od
}

/* To version 1. */
inline restore()
{
    atomic {
        find_newest();
        number = newest;
        if
        :: !HAS(version_there, 1) || number == 1 -> goto finished
        :: else
        fi
    };
    atomic {
        if
        :: !HAS(version_there, 1) -> goto finished
        :: else
        fi;
        seen = num_relisted;
        found = current.next;                            /* of the versions that were listed, 2 or more */
        copy(current, versions[1]);
        current.next = found
    };
    atomic {
        if
        :: current.segments & ~segment_there -> goto finished
        :: else
        fi
    };
    atomic {
        copy(following, current);
        create()
    }
}

#define LOWEST(set) i = 0; do :: !HAS(set, i) -> i++ :: else -> break od; set = set & ~(1 << i)

inline vacuum()
{
    d_step {                                             /* the versions and the files there are */
        find_newest();
#ifdef RECKLESS
        removed_segments = segment_there;
        expired = version_there & ~(1 << newest);
        seen = reserved
#else
        removed_segments = segment_there & ((1 << (OLD_SEGMENT + 1)) - 1);
        expired = version_there & ((1 << OLD_VERSION) - 1)
#endif
        ;
#ifdef MUTANT_NO_RELISTING
        listed = version_there
#endif
    };
    do
    :: expired -> d_step { LOWEST(expired); version_there = version_there & ~(1 << i) }
    :: else -> break
    od;
    atomic {                                             /* what no version names */
        num_relisted++;
        d_step {
#ifndef MUTANT_NO_RELISTING
            listed = version_there;
#endif
            i = 1;
            do
            :: i < VERSIONS ->
                if
                :: HAS(listed, i) && HAS(version_there, i) ->
                    removed_segments = removed_segments & ~versions[i].segments
                :: else
                fi;
                i++
            :: else -> break
            od;
            listed = 0
        }
    };
    do
    :: removed_segments ->
        d_step {
            LOWEST(removed_segments);
            find_newest();
#ifndef RECKLESS
            assert(!HAS(versions[newest].segments, i) || is_excused);
#endif
            segment_there = segment_there & ~(1 << i)
        }
    :: else -> break
    od
#ifdef RECKLESS
    ; atomic {
        i = IDS;
        do                                                   /* all reservations but the last */
        :: i > 0 && !HAS(seen, i) -> i--
        :: else -> break
        od;
        reserved = reserved & ~(seen & ((1 << i) - 1))
    }
#endif
}

proctype Writer(byte what)
{
    Version current;
    byte base_segments, file, state, removed, added, removed_segments, segment = NONE, number, outcome, expired, need;
    byte listed;
    byte seen;                   /* by a restore: `num_relisted`; by a vacuum that is reckless: `reserved` */

    read_newest();
    if
    :: what <= OPTIMIZE -> change()
    :: what == RESTORE -> restore()
    :: what == VACUUM -> vacuum()
    fi;
finished:
    atomic {                                             /* what it knew makes no difference any more */
        forget(current);
        base_segments = 0; file = 0; state = 0; removed = 0; added = 0; removed_segments = 0; segment = 0; number = 0;
        outcome = 0; expired = 0; need = 0; seen = 0; listed = 0; what = 0
    }
}

/* Files are written anew and deleted. */
proctype Lake()
{
end:
    do
    :: atomic {
            num_changes < CHANGES ->
            num_changes++;
            if
            :: lake[0] = 2 + num_changes
            :: lake[0] = 0
            :: lake[1] = 2 + num_changes
            :: lake[1] = 0
            fi
        }
    od
}

/* Searches, at any moment: each takes the newest version, and where a vacuum was faster lists again. */
proctype Reader()
{
end:
    do
    :: d_step { find_newest(); assert_zones(versions[newest]); i = 0 }
    od
}

init {
    byte a, b, c;
    atomic {
        /* version 1: files 0 and 1; then file 1 changed: version 2 */
        lake[0] = 1; lake[1] = 2;
        versions[1].id[0] = 1; versions[1].state[0] = 1; versions[1].id[1] = 2; versions[1].state[1] = 1;
        versions[1].segments = 3; versions[1].next = 3;
        versions[2].id[0] = 1; versions[2].state[0] = 1; versions[2].id[1] = 3; versions[2].state[1] = 2;
        versions[2].segments = 5; versions[2].next = 4;
        segments[0].zones[1] = ZONES(0, 1); segments[1].zones[2] = ZONES(1, 1); segments[2].zones[3] = ZONES(1, 2);
        segment_there = 7; num_segments = 3; version_there = 6;
        reserved = (1 << 1) | (1 << 2) | (1 << 3);
        select(a : 0 .. 4); select(b : a .. 4); select(c : b .. 4);       /* in order: writers do not differ otherwise */
        run Writer(a); run Writer(b); run Writer(c);
        run Lake(); run Reader()
    }
}
