/* The commit protocol of an index, for Spin: every interleaving of three writers, a reader and a lake that changes.
 *
 * What it models is said in index-format.md#commit and refresh.md. A step of a process is one operation of the store or
 * one look at the lake. A writer that dies takes no further step: each state of the search is one in which any of the
 * writers may have died before. One answer of the store may be lost: then the writer is told of an error, or that
 * "something is there", though its version was written.
 *
 *   spin -a commit.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m100000
 *
 * What must hold is asserted in `committed` and where segments are deleted and searched. With -DRECKLESS the vacuum takes
 * nothing for young: then commits may be lost, and rows still not. With -DMUTANT_<NAME> one line of the protocol is left
 * out or wrong, and an assertion must fail: tests/fuzz/test_model.py has the names and runs them all.
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
byte writer_of[VERSIONS];        /* the random word in each: who wrote it */
Segment segments[SEGMENTS];
byte segment_there;
byte num_segments;
byte reserved;                   /* the set of reservations; each is of one id */

hidden byte i, s, found;         /* scratch within a step */
byte lake[FILES];                /* the state of each file; 0 where it is gone */
byte num_changes;
bool is_answer_lost;
byte num_relisted;               /* vacuums that have listed the versions again */
bool is_restored;                /* since then an optimize may drop zones that its base took for dead; they are built again */
bool is_excused;                 /* a restore raced a vacuum that took its version for expired: refresh.md#vacuum */

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

/* Version `n` was just written on top of the one before. */
inline committed()
{
    assert_zones(versions[n]);
#ifndef RECKLESS
    is_excused = is_excused || (what == RESTORE && t != num_relisted);
    assert(HAS(version_there, n - 1));
    assert((versions[n].segments & ~segment_there) == 0 || is_excused);
    if
    :: what != RESTORE ->
        i = 0;
        do
        :: i < FILES ->
            assert(versions[n].id[i] == versions[n - 1].id[i] || versions[n - 1].id[i] == 0 ||
                lake[i] != versions[n - 1].state[i] ||
                versions[n].state[i] == versions[n - 1].state[i]);             /* else a commit is lost */
            if
            :: versions[n].id[i] == versions[n - 1].id[i] && !is_restored ->
                covered(versions[n - 1], i);
                t = found;
                covered(versions[n], i);
                assert(found >= t)
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
    n = VERSIONS - 1;
    do
    :: !HAS(version_there, n) -> n--
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
inline read_newest(to, number)
{
    do
    :: atomic { find_newest(); number = n };
        if
        :: atomic { HAS(version_there, number) -> copy(to, versions[number]) }; break
        :: !HAS(version_there, number)
        fi
    od
}

#define TAKEN 0
#define DONE 1
#define FAILED 2

/* Create version `n` with the content of `following`, if it is absent. */
inline create()
{
    if
    :: atomic {
#ifdef MUTANT_OVERWRITE
        true ->
#else
        !HAS(version_there, n) ->
#endif
        version_there = version_there | (1 << n);
        copy(versions[n], following);
        writer_of[n] = _pid;
        committed();
        outcome = DONE
    }
    :: atomic { HAS(version_there, n) -> outcome = TAKEN }
    fi;
    if
    :: true
    :: atomic { !is_answer_lost && outcome == DONE -> is_answer_lost = true; outcome = TAKEN }
    :: atomic { !is_answer_lost && outcome == DONE -> is_answer_lost = true; outcome = FAILED }
    fi;
    if
    :: outcome == TAKEN ->
        atomic {                                         /* what is there may be our own */
            if
#ifndef MUTANT_NO_READ_BACK
            :: HAS(version_there, n) && writer_of[n] == _pid -> outcome = DONE
#endif
            :: else
            fi
        }
    :: else
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
            :: HAS(following.segments, s) && !HAS(base.segments, s) ->
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
    is_same = following.id[0] == current.id[0] && following.id[1] == current.id[1] &&
        following.segments == current.segments
}

inline delete_written()
{
    if
    :: segment != NONE -> segment_there = segment_there & ~(1 << segment)
    :: else
    fi
}

inline commit_change()
{
    copy(current, base); number = base_number;
    do
    :: atomic { rebase() };
        if
        :: is_overlap || is_same -> atomic { delete_written() }; break
        :: else
        fi;
        n = number + 1;
        create();
        if
        :: outcome == DONE -> break
        :: outcome == FAILED ->                          /* an error: the version may be there */
#ifdef MUTANT_DELETE_ON_ERROR
            atomic { delete_written() };
#else
            atomic {
                if
                :: !HAS(version_there, n) -> delete_written()
                :: else
                fi
            };
#endif
            break
        :: else
#ifdef MUTANT_NO_REBASE
            ; number++
#else
            ; read_newest(current, number)
#endif
        fi
    od
}

/* --- writers -------------------------------------------------------------------------------------------------------- */

inline write_segment()
{
    segment = num_segments;
    num_segments++;
    segment_there = segment_there | (1 << segment)
}

/* Of one file. */
inline refresh()
{
    atomic {
        state = lake[file];
        covered(base, file);
        s = 0;
        do                                               /* zones in a segment that is missing are no zones */
        :: s < SEGMENTS ->
            if
            :: base.id[file] && HAS(base.segments, s) && segments[s].zones[base.id[file]] && !HAS(segment_there, s) ->
                found = 2
            :: else
            fi;
            s++
        :: else -> break
        od;
        is_kept = base.id[file] && base.state[file] == state && found != 2;
        removed = (is_kept -> 0 : base.id[file]);
        is_gap = is_kept && !found
    };
    if
    :: !is_kept && state ->
        do                                               /* reserve an id */
        ::            atomic {
                added = IDS;
                do
                :: added > 0 && !HAS(reserved, added - 1) -> added--
                :: else -> break
                od;
                added = (added > base.next -> added : base.next)
            };
            if
            :: atomic { !HAS(reserved, added) -> reserved = reserved | (1 << added); outcome = DONE }
            :: atomic { HAS(reserved, added) -> outcome = TAKEN }
            fi;
            if
            :: outcome == DONE -> break
            :: else
            fi
        od;
        atomic {                                         /* read the file, if it still is what was listed */
            if
#ifdef MUTANT_NO_FINGERPRINT
            :: true -> write_segment(); segments[segment].zones[added] = ZONES(file, lake[file])
#else
            :: lake[file] == state -> write_segment(); segments[segment].zones[added] = ZONES(file, state)
            :: else -> added = 0
#endif
            fi
        }
    :: is_gap ->
        atomic {
            if
            :: lake[file] == state -> write_segment(); segments[segment].zones[base.id[file]] = ZONES(file, state)
            :: else
            fi
        }
    :: else
    fi;
    commit_change()
}

inline optimize()
{
    atomic {
        write_segment();
        s = 0;
        do
        :: s < SEGMENTS ->
            if
            :: HAS(base.segments, s) && HAS(segment_there, s) ->
                removed_segments = removed_segments | (1 << s);
                i = 0;
                do
                :: i < FILES ->
                    if
                    :: base.id[i] && segments[s].zones[base.id[i]] ->
                        segments[segment].zones[base.id[i]] = segments[s].zones[base.id[i]]
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
    };
    commit_change()
}

/* To version 1. */
inline restore()
{
    atomic { find_newest(); t = HAS(version_there, 1) };
    if
    :: t && n != 1 ->
        t = num_relisted;
        n++;
        if
        :: atomic { HAS(version_there, 1) -> copy(following, versions[1]); outcome = DONE }
        :: atomic { !HAS(version_there, 1) -> outcome = FAILED }
        fi;
        if
        :: outcome == DONE && (following.segments & ~segment_there) == 0 ->
            following.next = base.next;                  /* of the versions that were listed, 2 or more */
            create()
        :: else
        fi
    :: else
    fi
}

inline vacuum()
{
    atomic {                                             /* the versions and the files there are */
        find_newest();
        i = n;
        n = version_there;
#ifdef RECKLESS
        removed_segments = segment_there;
        expired = version_there & ~(1 << i);
#else
        removed_segments = segment_there & ((1 << (OLD_SEGMENT + 1)) - 1);
        expired = version_there & ((1 << OLD_VERSION) - 1)
#endif
    };
    t = reserved;
    v = 1;
    do
    :: v < VERSIONS && HAS(expired, v) -> version_there = version_there & ~(1 << v); v++
    :: v < VERSIONS && !HAS(expired, v) -> v++
    :: else -> break
    od;
    atomic {                                             /* what no version names */
#ifndef MUTANT_NO_RELISTING
        n = version_there;
#endif
        num_relisted++;
        v = 1;
        do
        :: v < VERSIONS ->
            if
            :: HAS(n, v) && HAS(version_there, v) -> removed_segments = removed_segments & ~versions[v].segments
            :: else
            fi;
            v++
        :: else -> break
        od
    };
    v = 0;
    do
    :: v < SEGMENTS && HAS(removed_segments, v) ->
        atomic {
            find_newest();
#ifndef RECKLESS
            assert(!HAS(versions[n].segments, v) || is_excused);
#endif
            segment_there = segment_there & ~(1 << v);
            v++
        }
    :: v < SEGMENTS && !HAS(removed_segments, v) -> v++
    :: else -> break
    od
#ifdef RECKLESS
    ; i = IDS;
    do                                                   /* all reservations but the last */
    :: i > 0 && !HAS(t, i) -> i--
    :: else -> break
    od;
    atomic { reserved = reserved & ~(t & ((1 << i) - 1)) }
#endif
}

proctype Writer(byte what)
{
    Version base, current, following;
    byte file, state, removed, added, removed_segments, segment, number, base_number, outcome, expired;
    byte n, t, v;
    bool is_overlap, is_same, is_kept, is_gap;

    segment = NONE;
    read_newest(base, base_number);
    if
    :: what < OPTIMIZE -> file = what; refresh()
    :: what == OPTIMIZE -> optimize()
    :: what == RESTORE -> restore()
    :: what == VACUUM -> vacuum()
    fi;
    atomic {                                             /* what it knew makes no difference any more */
        forget(base); forget(current); forget(following);
        file = 0; state = 0; removed = 0; added = 0; removed_segments = 0; segment = 0; number = 0; base_number = 0;
        outcome = 0; expired = 0; n = 0; t = 0; v = 0;
        is_overlap = false; is_same = false; is_kept = false; is_gap = false
    }
}

/* Files are written anew and deleted. */
proctype Lake()
{
    byte file;
    do
    :: num_changes < CHANGES ->
        atomic {
            num_changes++;
            if
            :: file = 0
            :: file = 1
            fi;
            if
            :: lake[file] = 2 + num_changes
            :: lake[file] = 0
            fi
        }
    :: else -> break
    od
}

/* Searches, at any moment: each takes the newest version, and where a vacuum was faster lists again. */
proctype Reader()
{
    byte n;
end:
    do
    :: atomic { find_newest(); assert_zones(versions[n]); n = 0 }
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
