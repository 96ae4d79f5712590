"""A node of a tree whose children were chosen, and greedy, as ``plugins/reference/accept_chosen.py`` says it."""

from dataclasses import replace

from draftsmith.plugins.reference.accept_step import Rule

from .accept_step import (
    Children,
    Draw,
    Node,
    Step,
    Strength,
    binary_divergence,
    divergence_term,
    halve,
)
from .accept_target import COIN, RESIDUAL, Target, position_uniform
from .function_values import Value, choose, choose_fields, constant, greatest, least, where


def step_greedy(target: Target, children: Children, strength: Strength) -> Step:
    """The argmax, or the first ranked child that ``mentored`` (by budget) or ``top_delta`` lets pass."""
    top, tokens = target.top, children.tokens
    best = target.logits.at(top)
    logits, ranks = target.logits.at(tokens), target.rank.at(tokens)
    is_near = strength.is_one_of(Rule.MENTORED_BUDGET) & (best - logits <= strength.first)
    is_ranked = ranks.cast("float64") < strength.second
    is_likely = target.p.at(tokens) >= target.p.at(top) - strength.first
    is_close = strength.is_one_of(Rule.TOP_DELTA) & is_ranked & is_likely
    is_finite = logits > -float("inf")
    passes = children.is_child & (tokens.equals(top) | (is_finite & (is_near | is_close)))
    order = where(passes, ranks, target.rank.size())
    place = (-order).equals((-order).max()).first_true()
    has_child = passes.any()
    token = where(has_child, tokens.at(place), top)
    zero = constant(best, 0.0, "float64")
    return Step(child=where(has_child, place, -1), token=token, spent=zero, regret=best - target.logits.at(token))


def step_chosen(node: Node) -> Step:
    """One position at a temperature above greedy."""
    draw, strength = _draw(node), node.strength
    exact = node.settle(draw, node.children.mass, 0.0)
    is_raised = strength.is_one_of(Rule.MENTORED_BUDGET, Rule.MENTORED_PRICE, Rule.LENIENT)
    step = choose_fields(is_raised, _step_raised(node, draw, exact), exact)
    step = choose_fields(strength.is_one_of(Rule.TYPICAL), _step_typical(node, draw, exact), step)
    return choose_fields(strength.is_one_of(Rule.THRESHOLD), _step_threshold(node, draw, exact), step)


def _draw(node: Node) -> Draw:
    children, coin = node.children, position_uniform(node.key, COIN)
    token = node.target.draw_shared(node.key)
    place = children.place_of(token)
    index = where(place < 0, 0, place)
    before = children.probabilities.cumulative(exclusive=True).at(index)
    inside = before + coin * children.probabilities.at(index)
    beyond = children.mass + coin * (1.0 - children.mass)
    is_child = (children.mass > 0) & ((coin < children.mass) | (node.children.outside <= 0))
    picked = where(is_child, children.pick(coin), -1)
    return Draw(
        child=where(node.is_shared, place, picked),
        coin=where(node.is_shared, where(place < 0, beyond, inside), coin),
        shared=token,
    )


def _step_raised(node: Node, draw: Draw, exact: Step) -> Step:
    """Children hold P' instead of P."""
    mass = node.children.mass
    has_choice = (mass > 0) & (node.children.outside > 0)
    raised = _raise(node.strength, mass)
    spent = binary_divergence(raised, mass)
    share = (draw.coin - mass) / where(raised > mass, raised - mass, 1.0) * mass
    is_lifted = (draw.child < 0) & (draw.coin < raised)
    lifted = node.accept(draw, node.children.pick(share), spent)
    return choose_fields(has_choice, choose_fields(is_lifted, lifted, node.settle(draw, raised, spent)), exact)


def _raise(strength: Strength, mass: Value) -> Value:
    first, left = strength.first, strength.left
    lenient = least(mass / greatest(first, (-left).exp()), 1.0)
    is_inside = (mass > 0) & (mass < 1.0)
    priced = where(is_inside, mass / (mass + (1.0 - mass) * (-first).exp()), mass)
    is_payable = strength.is_one_of(Rule.MENTORED_PRICE) & (binary_divergence(priced, mass) <= left)
    budget = where(strength.is_one_of(Rule.MENTORED_PRICE), left, least(first, left))
    by_budget = _raise_by_budget(mass, budget)
    return choose([(strength.is_one_of(Rule.LENIENT), lenient), (is_payable, priced)], by_budget)


def _raise_by_budget(mass: Value, budget: Value) -> Value:
    """The largest P' >= P whose divergence is in the budget."""
    one = constant(mass, 1.0, "float64")
    low = halve("raise", mass, one, lambda middle: binary_divergence(middle, mass) <= budget)
    is_fixed = (mass <= 0) | (mass >= 1.0) | (budget <= 0)
    reaches_all = budget >= -where(mass > 0, mass, 1.0).log()
    return choose([(is_fixed, mass), (reaches_all, one)], low)


def _step_typical(node: Node, draw: Draw, exact: Step) -> Step:
    """The most probable child if its p is high enough; else a token outside."""
    children, strength = node.children, node.strength
    best = children.probabilities.max()
    limit = least(strength.first, strength.second * (-node.target.entropy).exp())
    passes = (limit < best) | (children.outside <= 0)
    held = where(passes, best, children.outside)
    spent = -where(held > 0, held, 1.0).log()
    place = (children.is_child & children.probabilities.equals(best)).first_true()
    anew = position_uniform(node.key, RESIDUAL)  # the coin may have fallen to a child
    other = Draw(
        child=constant(draw.child, -1, "int64"), coin=where(node.is_shared, draw.coin, anew), shared=draw.shared
    )
    bound = where(node.is_shared, children.mass, 0.0)
    relaxed = choose_fields(passes, node.accept(draw, place, spent), node.settle(other, bound, spent))
    return choose_fields((children.mass <= 0) | (strength.left < spent), exact, relaxed)


def _step_threshold(node: Node, draw: Draw, exact: Step) -> Step:
    """The first child with p >= single or coin * acc < the mass up to it."""
    children, strength = node.children, node.strength
    p = children.probabilities
    mass, is_possible = p.cumulative(), p > 0
    passes = p >= strength.first
    reach = where(is_possible, where(passes, 1.0, least(mass / strength.second, 1.0)), 0.0)
    is_full = (reach >= 1.0).cast("int64")
    is_active = is_possible & is_full.cumulative(exclusive=True).equals(0)
    covered = where(p.is_before() & is_active.unsqueeze(0), reach.unsqueeze(0), 0.0).max(1)
    gained = where(is_active & (reach > covered), reach - covered, 0.0)
    whole = where(is_active, reach, 0.0).max()
    outside = children.outside
    spent = divergence_term(gained, where(is_possible, p, 1.0)).sum() + divergence_term(1.0 - whole, outside)
    is_met = is_active & (passes | (draw.coin * strength.second < mass))
    accepted = where(is_met.any(), is_met.first_true(), draw.child)
    relaxed = node.settle(replace(draw, child=accepted), whole, spent)
    return choose_fields(strength.left < spent, exact, relaxed)
