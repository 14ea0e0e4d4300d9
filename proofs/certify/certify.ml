(* Reads traces and passes their events to the acceptor, which decides. docs/proofs.md describes the formats. *)

let usage = "\
Certifies traces of QFQ: an acceptor that was proved correct checks each departure.

Usage: certify FLOWS ARRIVALS DEPARTURES
       certify --events [FILE]

The three files are those that `fairlane replay --alg qfq` reads and writes. With --events, FILE (or standard input) holds
any number of traces in one stream; docs/proofs.md describes it.

Exit status: 0 yes, 1 no, 2 bad input."

exception Bad of string
let bad place = Printf.ksprintf (fun problem -> raise (Bad (place ^ ": " ^ problem)))

(* ---- one trace ---- *)

type trace = {
  name : string;
  clock : Acceptor.clock option;
  (* Weight, longest packet, and cost and group if they are given; the last flow first. *)
  terms : (Z.t * Z.t * (Z.t * Z.t) option) list;
  (* From the first event on. *)
  table : Acceptor.table option;
  pace : Z.t;
  unit : Z.t;
  restarts : bool;
}

let new_trace name = { name; clock = None; terms = []; table = None; pace = Z.zero; unit = Z.one; restarts = false }

(* The numbers of a scheduler, or those of Fairlane. *)
let begun place trace =
  let terms = List.rev trace.terms in
  let clock, flows =
    match trace.clock with
    | None -> Acceptor.fairlane (List.map (fun (weight, longest, _) -> (weight, longest)) terms)
    | Some clock ->
      let flow (weight, longest, own) =
        match own with
        | Some (cost, group) ->
          { Acceptor.weight; of_longest = longest; of_cost = cost; of_group = group }
        | None -> bad place "a flow without cost and group (with a clock, each flow has both)"
      in
      (clock, List.map flow terms)
  in
  match Acceptor.initial clock flows with
  | Some table ->
    { trace with table = Some table; pace = clock.Acceptor.pace; unit = Acceptor.unit_of clock; restarts = clock.Acceptor.restarts }
  | None ->
    bad place "the theorems do not cover these flows (see the assumptions in docs/proofs.md)"

let why trace refusal =
  let bytes x = Q.to_float (Q.make x trace.pace) in
  match refusal with
  | Acceptor.No_flow -> "there is no such flow"
  | Acceptor.Bad_length longest -> Printf.sprintf "its length is not between 1 and the flow's longest, %s" (Z.to_string longest)
  | Acceptor.No_packet -> "the flow has no packet"
  | Acceptor.Other_length first -> Printf.sprintf "the flow's first packet has %s bytes" (Z.to_string first)
  | Acceptor.Not_eligible (start, now) ->
    Printf.sprintf "the flow is not eligible: its slot begins %.3f bytes of work after V" (bytes (Z.sub start now))
  | Acceptor.Overtakes (flow, its, finish) ->
    Printf.sprintf "it overtakes flow %d, which is eligible and whose finish is %.3f bytes of work earlier" flow
      (bytes (Z.sub finish its))

exception No of string

let step trace event = Acceptor.next trace.pace trace.unit trace.restarts (Option.get trace.table) event

(* ---- lines of numbers ---- *)

type lines = { path : string; channel : in_channel; mutable number : int }

let open_lines path =
  if path = "-" then { path = "standard input"; channel = stdin; number = 0 } else
  try { path; channel = open_in path; number = 0 } with Sys_error problem -> raise (Bad problem)

let place lines = Printf.sprintf "%s:%d" lines.path lines.number

let rec next_line lines =
  match input_line lines.channel with
  | "" -> lines.number <- lines.number + 1; next_line lines
  | line -> lines.number <- lines.number + 1;
    let last = String.length line - 1 in
    Some (if line.[last] = '\r' then String.sub line 0 last else line)
  | exception End_of_file -> None

let header lines expected =
  match next_line lines with
  | Some line when line = expected -> ()
  | _ -> bad lines.path "the first line is not %S" expected

(* Fills [into] with the numbers of a line. *)
let numbers lines line into =
  let length = String.length line and count = Array.length into in
  let at = ref 0 in
  for i = 0 to count - 1 do
    let from = !at and number = ref 0 in
    while !at < length && (let c = String.unsafe_get line !at in c >= '0' && c <= '9') do
      number := !number * 10 + Char.code (String.unsafe_get line !at) - 48;
      incr at
    done;
    if !at = from || !at - from > 18 then bad (place lines) "%S: not %d whole numbers" line count;
    into.(i) <- !number;
    if i < count - 1 then
      if !at < length && line.[!at] = ',' then incr at else bad (place lines) "%S: not %d whole numbers" line count
  done;
  if !at <> length then bad (place lines) "%S: not %d whole numbers" line count

let row lines into = match next_line lines with Some line -> numbers lines line into; true | None -> false

(* ---- FLOWS ARRIVALS DEPARTURES ---- *)

let of_files flows_path arrivals_path departures_path =
  let lines = open_lines flows_path in
  header lines "flow,weight,max_len";
  let flow = Array.make 3 0 and trace = ref (new_trace departures_path) and count = ref 0 in
  while row lines flow do
    if flow.(0) <> !count then bad (place lines) "flow %d (flows are numbered 0, 1, ..)" flow.(0);
    incr count;
    trace := { !trace with terms = (Z.of_int flow.(1), Z.of_int flow.(2), None) :: !trace.terms }
  done;
  if !count = 0 then bad flows_path "there is no flow";
  let trace = ref (begun flows_path !trace) in
  let arrivals = open_lines arrivals_path and departures = open_lines departures_path in
  header arrivals "time_ns,flow,len";
  header departures "start_ns,end_ns,flow,len,arrival_ns";
  let arrival = Array.make 3 0 and departure = Array.make 5 0 in
  let more = ref (row arrivals arrival) and arrived = ref 0 and departed = ref 0 and before = ref 0 in
  while row departures departure do
    if departure.(0) < !before then bad (place departures) "it starts before the departure above";
    before := departure.(0);
    while !more && arrival.(0) <= departure.(0) do
      (match step !trace (Acceptor.Arrival (arrival.(1), Z.of_int arrival.(2))) with
       | Acceptor.Inl table -> trace := { !trace with table = Some table }
       | Acceptor.Inr refusal -> bad (place arrivals) "%s" (why !trace refusal));
      incr arrived;
      let time = arrival.(0) in
      more := row arrivals arrival;
      if !more && arrival.(0) < time then bad (place arrivals) "it is earlier than the arrival above (sort them by time)"
    done;
    (match step !trace (Acceptor.Departure (departure.(2), Z.of_int departure.(3))) with
     | Acceptor.Inl table -> trace := { !trace with table = Some table }
     | Acceptor.Inr refusal ->
       raise (No (Printf.sprintf "%s: departure %d at %d ns, flow %d, %d bytes: %s" (place departures) (!departed + 1)
                    departure.(0) departure.(2) departure.(3) (why !trace refusal))));
    incr departed
  done;
  Printf.printf "yes: %d flows, %d arrivals, %d departures\n" !count !arrived !departed

(* ---- a stream of events ---- *)

let of_stream path =
  let lines = open_lines path in
  let traces = ref 0 and departed = ref 0 and in_trace = ref 0 in
  let trace = ref (new_trace "") and marks = ref [] in
  let words line = List.filter (( <> ) "") (String.split_on_char ' ' line) in
  let big word =
    match Z.of_string word with
    | number when Z.sign number >= 0 -> number
    | _ | exception Invalid_argument _ -> bad (place lines) "%S: not a whole number" word
  in
  let small word = match int_of_string_opt word with Some n when n >= 0 -> n | _ -> bad (place lines) "%S: not a whole number" word in
  let event event =
    if !trace.table = None then trace := begun (place lines) !trace;
    match step !trace event with
    | Acceptor.Inl table -> trace := { !trace with table = Some table }
    | Acceptor.Inr refusal ->
      let flow, length, kind =
        match event with
        | Acceptor.Arrival (flow, length) -> (flow, length, "arrival")
        | Acceptor.Departure (flow, length) -> (flow, length, Printf.sprintf "departure %d" (!in_trace + 1))
      in
      let problem = Printf.sprintf "%s: trace %S: %s, flow %d, %s bytes: %s" (place lines) !trace.name kind flow
          (Z.to_string length) (why !trace refusal) in
      raise (match event with Acceptor.Arrival _ -> Bad problem | Acceptor.Departure _ -> No problem)
  in
  let before_events keyword = if !trace.table <> None then bad (place lines) "%s after an event (it belongs before the first)" keyword in
  let rec loop () =
    match next_line lines with
    | None -> ()
    | Some line ->
      (match words line with
       | [ "+"; flow; length ] -> event (Acceptor.Arrival (small flow, big length))
       | [ "-"; flow; length ] ->
         event (Acceptor.Departure (small flow, big length));
         incr in_trace;
         incr departed
       | [ "[" ] -> marks := (!trace, !in_trace) :: !marks
       | [ "]" ] ->
         (match !marks with
          | (marked, count) :: rest -> trace := marked; in_trace := count; marks := rest
          | [] -> bad (place lines) "] without [")
       | "trace" :: name ->
         incr traces;
         in_trace := 0;
         marks := [];
         trace := new_trace (String.concat " " name)
       | [ "flow"; weight; longest ] ->
         before_events "flow";
         trace := { !trace with terms = (big weight, big longest, None) :: !trace.terms }
       | [ "flow"; weight; longest; cost; group ] ->
         before_events "flow";
         trace := { !trace with terms = (big weight, big longest, Some (big cost, big group)) :: !trace.terms }
       | "clock" :: pace :: bits :: scale :: ([] | [ "restarts" ] as restarts) ->
         before_events "clock";
         let bits = small bits in
         if bits > 1000 then bad (place lines) "clock: %d bits (at most 1000)" bits;
         trace := { !trace with clock = Some { Acceptor.pace = big pace; bits = Z.of_int bits; scale = big scale; restarts = restarts <> [] } }
       | _ -> bad (place lines) "%S: not a line of a trace (trace, flow, clock, +, -, [ or ])" line);
      loop ()
  in
  loop ();
  Printf.printf "yes: %d traces, %d departures\n" !traces !departed

let () =
  let certified run =
    try run () with
    | No why -> Printf.printf "no: %s\n" why; exit 1
    | Bad problem -> prerr_endline ("certify: " ^ problem); exit 2
  in
  match List.tl (Array.to_list Sys.argv) with
  | [ "--help" ] | [ "-h" ] -> print_endline usage
  | [ "--events" ] -> certified (fun () -> of_stream "-")
  | [ "--events"; path ] -> certified (fun () -> of_stream path)
  | [ flows; arrivals; departures ] -> certified (fun () -> of_files flows arrivals departures)
  | _ -> prerr_endline usage; exit 2
